"""`Keys`: settle, release and renew claims; find, change and erase stored keys."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict

import msgspec

from onefold.app.context import Noun
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
from onefold.runtime import Call, Procedure, awaited, batch, call, transact

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from typing import Unpack

    from onefold.databases import Build
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


class Keys(Noun):
    """Keys of all surfaces, for one tenant."""

    @call
    def settle(self, claim: Claim, result: Any = None) -> Procedure[None]:
        """Store the result of a claim under its fence; `LeaseLost` if it is not yours any more."""
        return batch(settle_item(checked_claim(claim), encode_result(result)))

    asettle: Final = awaited(settle)

    @call
    def release(self, claim: Claim) -> Procedure[bool]:
        """Release a key without a result; False if it is not yours any more."""
        held = checked_claim(claim)
        return bool((yield from transact(lambda sql: claims.release(sql, [held]))))

    arelease: Final = awaited(release)

    @call
    def renew(self, claim: Claim, *, lease: timedelta = LEASE) -> Procedure[datetime | None]:
        """Extend a lease to `lease` from now; returns its end, or None if the lease has ended.

        A lease that lasts longer is not shortened.
        """
        held, micros = checked_claim(claim), span(lease, "lease")
        return transact(lambda sql: claims.renew(sql, held, lease=micros))

    arenew: Final = awaited(renew)

    @call
    def force_settle(
        self,
        scope: str,
        key: str,
        result: Any = None,
        *,
        surface: str = SURFACE,
        step: str | None = None,
    ) -> Procedure[bool]:
        """Mark a key as done, with this result, as an operator. Its holder is fenced off.

        With `step`, the label of a step, that step of the last attempt is done: the next attempt
        continues after it.
        """
        held = self._key(scope, key, open_surface(surface))
        return transact(_forcing(held, Holding.SETTLED, encode_result(result), step))

    aforce_settle: Final = awaited(force_settle)

    @call
    def force_release(
        self, scope: str, key: str, *, surface: str = SURFACE, step: str | None = None
    ) -> Procedure[bool]:
        """Free a key as an operator. Its holder is fenced off.

        With `step`, the label of a step, that step of the last attempt was not done, and may run.
        """
        held = self._key(scope, key, surface)
        return transact(_forcing(held, Holding.FREE, None, step))

    aforce_release: Final = awaited(force_release)

    @call
    def unlock(self, name: str) -> Procedure[bool]:
        """Free a lock as an operator. Its holder is fenced off."""
        held = self._key("", lock_key(name), "lock")
        return transact(_forcing(held, Holding.FREE, None, None))

    aunlock: Final = awaited(unlock)

    def _key(self, scope: object, key: object, surface: str) -> ClaimKey:
        return claim_key(self._context.tenant, surface, scope, key)

    @call
    def find(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        results: bool = False,
        **filters: Unpack[KeyFilters],
    ) -> Procedure[KeyPage]:
        """Stored keys by surface, scope and key, one page per call: `after=page.next` continues.

        `state="unknown"` finds the keys that an operator should check. Results are customer data
        and are only returned with `results=True`. Steps are keys of the surface `step`, and are
        only returned if `surface` names it. A page ends after 4 MiB of results.
        """
        wanted, place = self._filter(filters), stored_key.after(after)
        shown = checks.flag(results, "results")
        if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
            raise InvalidInput("limit", f"must be from 1 to {LONGEST_PAGE}, got {limit!r}")
        return transact(
            lambda sql: stored_keys.find(sql, wanted, after=place, limit=limit, results=shown),
            write=False,
        )

    afind: Final = awaited(find)

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

    @call
    def erase(
        self,
        *,
        key: str | None = None,
        tenant: str | None = None,
        scope: str | None = None,
        surface: str | None = None,
    ) -> Procedure[Erased]:
        """Remove all stored data of a tenant, or of one key of this tenant, keys included.

        The API keys of an erased tenant are revoked and lose their names. `scope` removes the keys
        of one scope (a principal, for example) with their stored responses, on all surfaces or on
        one; jobs stay. With `surface`, `key` does the same.
        """
        yield from self._flushed(counts=tenant is not None)
        own = self._context.tenant
        owner = own if tenant is None else checks.text(tenant, "tenant")
        if own not in {"", owner}:
            raise InvalidInput("tenant", f"must be {own!r} here, got {tenant!r}")
        wanted = None if key is None else checks.key(key, "key")
        if scope is None and surface is None:
            if (key is None) == (tenant is None):
                raise InvalidInput("erase", "needs either key=, tenant= or scope=")
            everything = partial(maintenance.erase, tenant=owner, key=wanted)
            return (yield from transact(everything))
        scopes = [None] if scope is None else stored_scopes(scope)
        of = None if surface is None else open_surface(surface)
        if scope is None and wanted is None:
            raise InvalidInput("surface", "needs key= or scope= beside it")
        erased = 0
        for within in scopes:
            part = yield from transact(
                partial(maintenance.erase_scope, tenant=owner, scope=within, surface=of, key=wanted)
            )
            erased += part.claims
        return Erased(claims=erased)

    aerase: Final = awaited(erase)

    @call
    def why(
        self,
        key: str,
        *,
        surface: str | None = None,
        scope: str | None = None,
        fingerprint: str | None = None,
        payload: Any = _NOT_GIVEN,
    ) -> Procedure[Why]:
        """All holders of this key: jobs by their unique keys, and claims of every surface.

        Each holder has its state, its start and end, and the requests that it has suppressed. With
        a `fingerprint`, or the `payload` of an enqueue, each also has a comparison with that
        request. `surface` and `scope` narrow the search.
        """
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
        build = partial(why.find_why, sought=sought, question=Question(digest, payload))
        yield from self._flushed()
        return (yield from transact(build, write=False))

    awhy: Final = awaited(why)

    @call
    def duplicates(self, job_id: str) -> Procedure[Duplicates]:
        """The duplicates that the keys of a job have suppressed: number, times, request ids."""
        build = partial(jobs.duplicates, tenant=self._context.tenant, job_id=parse_id(job_id))
        yield from self._flushed()
        return (yield from transact(build, write=False))

    aduplicates: Final = awaited(duplicates)

    def _flushed(self, *, counts: bool = False) -> Procedure[None]:
        """Write the notes of this process, unless a transaction here could make that wait."""
        if self._context.borrowed is None and innermost.get() is None:
            yield Call(self._context.duplicate_log.flush)
            if counts:
                yield from self._context.counts.write()


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
