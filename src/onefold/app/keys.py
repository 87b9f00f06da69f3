"""`Keys`: settle, release and renew claims; find, change and erase stored keys."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict

import msgspec

from onefold.databases.handler_transaction import innermost
from onefold.effects.claims import LEASE, SURFACE, open_surface, settle_item
from onefold.effects.lock import lock_key
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model import checks, stored_key
from onefold.model.claim import ClaimKey, Holding, checked_claim, claim_key, encode_result
from onefold.model.ids import hash_of, parse_id
from onefold.model.json_text import sorted_payload
from onefold.model.stored_key import KEY_STATES, Question
from onefold.model.timestamps import span
from onefold.model.unique import fingerprint as fingerprint_of
from onefold.operations import claims, jobs, maintenance, steps, stored_keys
from onefold.operations import stored_keys as why
from onefold.operations.maintenance import Erased
from onefold.runtime import Procedure, Transact

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from typing import Unpack

    from onefold.app.context import Context
    from onefold.databases import Build
    from onefold.databases.batching import Item
    from onefold.model.claim import Claim
    from onefold.model.stored_key import Duplicates, KeyPage, KeyState, Why
    from onefold.operations.statement import Operation, Sql

LONGEST_PAGE: Final = 1000
_DIGEST: Final = "digest:"
_NOT_GIVEN: Final[Any] = msgspec.UNSET


class KeyFilters(TypedDict, total=False):
    """Filters; several together must all match."""

    surface: str | None
    """`http`, `webhook`, `form`, `once`, `publish`, `lock`, `step`, or one of your own."""
    scope: str | None
    """The principal of a request, or the name of a `once`."""
    key: str | None
    state: KeyState | None
    """held, settled, free, unknown, abandoned or expired."""


class Keys:
    """Keys of all surfaces, for one tenant."""

    def __init__(self, context: Context) -> None:
        """The keys of one tenant."""
        self._context = context

    def settle(self, claim: Claim, result: Any = None) -> None:
        """Store the result of a claim under its fence; `LeaseLost` if it is not yours any more."""
        self._context.store.batch(_settling(claim, result))

    async def asettle(self, claim: Claim, result: Any = None) -> None:
        """`settle`, awaited."""
        await self._context.store.abatch(_settling(claim, result))

    def release(self, claim: Claim) -> bool:
        """Release a key without a result; False if it is not yours any more."""
        return bool(self._context.store.transact(_releasing(claim)))

    async def arelease(self, claim: Claim) -> bool:
        """`release`, awaited."""
        return bool(await self._context.store.atransact(_releasing(claim)))

    def renew(self, claim: Claim, *, lease: timedelta = LEASE) -> datetime | None:
        """Extend a lease to `lease` from now; returns its end, or None if the lease has ended.

        A lease that lasts longer is not shortened.
        """
        return self._context.store.transact(_renewing(claim, lease))

    async def arenew(self, claim: Claim, *, lease: timedelta = LEASE) -> datetime | None:
        """`renew`, awaited."""
        return await self._context.store.atransact(_renewing(claim, lease))

    def force_settle(
        self,
        scope: str,
        key: str,
        result: Any = None,
        *,
        surface: str = SURFACE,
        step: str | None = None,
    ) -> bool:
        """Mark a key as done, with this result, as an operator. Its holder is fenced off.

        With `step`, the label of a step, that step of the last attempt is done: the next attempt
        continues after it.
        """
        held = self._key(scope, key, open_surface(surface))
        return self._context.store.transact(
            _forcing(held, Holding.SETTLED, encode_result(result), step)
        )

    async def aforce_settle(
        self,
        scope: str,
        key: str,
        result: Any = None,
        *,
        surface: str = SURFACE,
        step: str | None = None,
    ) -> bool:
        """`force_settle`, awaited."""
        held = self._key(scope, key, open_surface(surface))
        return await self._context.store.atransact(
            _forcing(held, Holding.SETTLED, encode_result(result), step)
        )

    def force_release(
        self, scope: str, key: str, *, surface: str = SURFACE, step: str | None = None
    ) -> bool:
        """Free a key as an operator. Its holder is fenced off.

        With `step`, the label of a step, that step of the last attempt was not done, and may run.
        """
        held = self._key(scope, key, surface)
        return self._context.store.transact(_forcing(held, Holding.FREE, None, step))

    async def aforce_release(
        self, scope: str, key: str, *, surface: str = SURFACE, step: str | None = None
    ) -> bool:
        """`force_release`, awaited."""
        held = self._key(scope, key, surface)
        return await self._context.store.atransact(_forcing(held, Holding.FREE, None, step))

    def unlock(self, name: str) -> bool:
        """Free a lock as an operator. Its holder is fenced off."""
        return self.force_release("", lock_key(name), surface="lock")

    async def aunlock(self, name: str) -> bool:
        """`unlock`, awaited."""
        return await self.aforce_release("", lock_key(name), surface="lock")

    def _key(self, scope: object, key: object, surface: str) -> ClaimKey:
        return claim_key(self._context.tenant, surface, scope, key)

    def find(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        results: bool = False,
        **filters: Unpack[KeyFilters],
    ) -> KeyPage:
        """Stored keys by surface, scope and key, one page per call: `after=page.next` continues.

        `state="unknown"` finds the keys that an operator should check. Results are customer data
        and are only returned with `results=True`. Steps are keys of the surface `step`, and are
        only returned if `surface` names it.
        """
        build = self._finding(limit, after, filters, results=results)
        return self._context.store.transact(build, write=False)

    async def afind(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        results: bool = False,
        **filters: Unpack[KeyFilters],
    ) -> KeyPage:
        """`find`, awaited."""
        build = self._finding(limit, after, filters, results=results)
        return await self._context.store.atransact(build, write=False)

    def _finding(
        self, limit: int, after: str | None, filters: KeyFilters, *, results: bool
    ) -> Build[KeyPage]:
        wanted, place = self._filter(filters), stored_key.after(after)
        shown = checks.flag(results, "results")
        if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
            raise InvalidInput("limit", f"must be from 1 to {LONGEST_PAGE}, got {limit!r}")
        return lambda sql: stored_keys.find(sql, wanted, after=place, limit=limit, results=shown)

    def _filter(self, filters: KeyFilters) -> stored_keys.KeyFilter:
        checks.options(filters, KeyFilters.__optional_keys__)
        surface, scope = filters.get("surface"), filters.get("scope")
        key, state = filters.get("key"), filters.get("state")
        if state is not None and state not in KEY_STATES:
            raise InvalidInput("state", f"must be one of {', '.join(KEY_STATES)}, got {state!r}")
        return stored_keys.KeyFilter(
            tenant=self._context.tenant,
            surface=None if surface is None else checks.name(surface, "surface"),
            scope=None if scope is None else stored_scope(scope),
            key=None if key is None else checks.key(key, "key"),
            state=state,
        )

    def erase(
        self,
        *,
        key: str | None = None,
        tenant: str | None = None,
        scope: str | None = None,
        surface: str | None = None,
    ) -> Erased:
        """Remove all stored data of a tenant, or of one key of this tenant, keys included.

        `scope` removes the keys of one scope (a principal, for example) with their stored
        responses, on all surfaces or on one; jobs stay. With `surface`, `key` does the same.
        """
        self._flush()
        return self._context.runtime.run(self._erase(key, tenant, scope, surface))

    async def aerase(
        self,
        *,
        key: str | None = None,
        tenant: str | None = None,
        scope: str | None = None,
        surface: str | None = None,
    ) -> Erased:
        """`erase`, awaited."""
        await self._aflush()
        return await self._context.runtime.arun(self._erase(key, tenant, scope, surface))

    def _erase(
        self, key: str | None, tenant: str | None, scope: str | None, surface: str | None
    ) -> Procedure[Erased]:
        own = self._context.tenant
        owner = own if tenant is None else checks.text(tenant, "tenant")
        if own not in {"", owner}:
            raise InvalidInput("tenant", f"must be {own!r} here, got {tenant!r}")
        wanted = None if key is None else checks.key(key, "key")
        if scope is None and surface is None:
            if (key is None) == (tenant is None):
                raise InvalidInput("erase", "needs either key=, tenant= or scope=")
            everything: Erased = yield Transact(
                lambda sql: maintenance.erase(sql, owner, key=wanted)
            )
            return everything
        scopes = [None] if scope is None else stored_scopes(scope)
        of = None if surface is None else open_surface(surface)
        if scope is None and wanted is None:
            raise InvalidInput("surface", "needs key= or scope= beside it")
        erased = 0
        for within in scopes:
            part: Erased = yield Transact(
                partial(maintenance.erase_scope, tenant=owner, scope=within, surface=of, key=wanted)
            )
            erased += part.claims
        return Erased(claims=erased)

    def why(
        self,
        key: str,
        *,
        surface: str | None = None,
        scope: str | None = None,
        fingerprint: str | None = None,
        payload: Any = _NOT_GIVEN,
    ) -> Why:
        """All holders of this key: jobs by their unique keys, and claims of every surface.

        Each holder has its state, its start and end, and the requests that it has suppressed. With
        a `fingerprint`, or the `payload` of an enqueue, each also has a comparison with that
        request. `surface` and `scope` narrow the search.
        """
        build = self._asking_why(key, surface, scope, fingerprint, payload)
        self._flush()
        return self._context.store.transact(build, write=False)

    async def awhy(
        self,
        key: str,
        *,
        surface: str | None = None,
        scope: str | None = None,
        fingerprint: str | None = None,
        payload: Any = _NOT_GIVEN,
    ) -> Why:
        """`why`, awaited."""
        build = self._asking_why(key, surface, scope, fingerprint, payload)
        await self._aflush()
        return await self._context.store.atransact(build, write=False)

    def _asking_why(
        self,
        key: str,
        surface: str | None,
        scope: str | None,
        fingerprint: str | None,
        payload: Any,
    ) -> Build[Why]:
        if fingerprint is not None and payload is not _NOT_GIVEN:
            raise ConflictingOptions("fingerprint", "and payload exclude each other: use one")
        if payload is not _NOT_GIVEN:
            sorted_payload(payload)
        sought = why.Sought(
            tenant=self._context.tenant,
            key=checks.key(key, "key"),
            surface=None if surface is None else checks.name(surface, "surface"),
            scope=None if scope is None else stored_scope(scope),
        )
        digest = None if fingerprint is None else checks.key(fingerprint, "fingerprint")
        question = Question(digest, payload)
        return lambda sql: why.find_why(sql, sought, question)

    def duplicates(self, job_id: str) -> Duplicates:
        """The duplicates that the keys of a job have suppressed: number, times, request ids."""
        build = self._counting(job_id)
        self._flush()
        return self._context.store.transact(build, write=False)

    async def aduplicates(self, job_id: str) -> Duplicates:
        """`duplicates`, awaited."""
        build = self._counting(job_id)
        await self._aflush()
        return await self._context.store.atransact(build, write=False)

    def _flush(self) -> None:
        """Write the notes of this process, unless a transaction here could make that wait."""
        if self._context.borrowed is None and innermost.get() is None:
            self._context.duplicate_log.flush()

    async def _aflush(self) -> None:
        """`_flush`, awaited."""
        if self._context.borrowed is None and innermost.get() is None:
            await self._context.duplicate_log.aflush()

    def _counting(self, job_id: str) -> Build[Duplicates]:
        wanted = parse_id(job_id)
        return lambda sql: jobs.duplicates(sql, self._context.tenant, wanted)


def _settling(claim: Claim, result: Any) -> Item[Any, None]:
    return settle_item(checked_claim(claim), encode_result(result))


def _releasing(claim: Claim) -> Build[set[str]]:
    held = checked_claim(claim)
    return lambda sql: claims.release(sql, [held])


def _renewing(claim: Claim, lease: timedelta) -> Build[datetime | None]:
    held, micros = checked_claim(claim), span(lease, "lease")
    return lambda sql: claims.renew(sql, held, lease=micros)


def _forcing(key: ClaimKey, state: Holding, result: str | None, step: str | None) -> Build[bool]:
    label = None if step is None else checks.key(step, "step")

    def build(sql: Sql) -> Operation[bool]:
        for one in _places(key):
            if label is None:
                done = yield from claims.force(sql, one, state, result=result)
            else:
                done = yield from steps.force_claim_step(
                    sql, one, label=label, state=state, value=result
                )
            if done:
                return True
        return False

    return build


def _places(key: ClaimKey) -> list[ClaimKey]:
    """The places of a key: by itself, or beside the job whose id is its scope."""
    try:
        home = hash_of(parse_id(key.scope))
    except InvalidInput:
        return [key]
    return [key, msgspec.structs.replace(key, home=home)]


def stored_scopes(scope: str) -> list[str | None]:
    """The stored forms of a scope: as it is, and as the id of a caller."""
    plain = stored_scope(scope)
    principal = scope_of(scope)
    return [plain] if principal == plain else [plain, principal]


def scope_of(principal: str) -> str:
    """The scope of one caller's keys. A name that looks like another scope is digested."""
    plain = stored_scope(principal)
    if "\n" in plain or (plain == principal and plain.startswith(_DIGEST)):
        return f"{_DIGEST}{fingerprint_of(principal)}"
    return plain


def stored_scope(scope: object) -> str:
    """The stored form of a scope: a digest if it is too long or contains NUL."""
    if isinstance(scope, str):
        size = len(scope.encode("utf-8", "replace"))
        if "\0" in scope or size > checks.KEY_BYTES:
            return f"{_DIGEST}{fingerprint_of(scope)}"
    return checks.text(scope, "scope")
