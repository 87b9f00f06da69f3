"""What an operator does with stored keys: look at them, and erase them with their answers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict

from onefold.calls.claims import open_surface
from onefold.calls.procedure import Conductor, Procedure, Transaction
from onefold.errors import InvalidInput
from onefold.model import checks, stored_key
from onefold.model.stored_key import KEY_STATES
from onefold.model.unique import fingerprint
from onefold.operations import maintenance, stored_keys
from onefold.operations.maintenance import Erased

if TYPE_CHECKING:
    from typing import Unpack

    from onefold.model.stored_key import KeyPage, KeyState

LONGEST_PAGE: Final = 1000
_DIGEST: Final = "digest:"


class KeyFilters(TypedDict, total=False):
    """Which keys are meant."""

    surface: str | None
    """`http`, `webhook`, `form`, `once`, `publish`, `lock`, `step`, or one of your own."""
    scope: str | None
    """Whose: the principal of a request, the name of a `once`."""
    key: str | None
    state: KeyState | None
    """held, settled, free, unknown, abandoned or expired."""


class KeyCalls:
    """Keys of every surface, seen from outside."""

    _conductor: Conductor
    _tenant: str

    def keys(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        results: bool = False,
        **filters: Unpack[KeyFilters],
    ) -> KeyPage:
        """Stored keys, by surface, scope and key; a page of at most `limit`, from `after` on.

        `state="unknown"` are those that somebody should look at. What is stored with a key is
        customer data, and is only shown with `results=True`. Steps are keys, too, of the surface
        `step`, and shown to who asks for that.
        """
        return self._conductor.run(self._keys(limit, after, filters, results=results))

    async def akeys(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        results: bool = False,
        **filters: Unpack[KeyFilters],
    ) -> KeyPage:
        """`keys`, awaited."""
        return await self._conductor.arun(self._keys(limit, after, filters, results=results))

    def _keys(
        self, limit: int, after: str | None, filters: KeyFilters, *, results: bool
    ) -> Procedure[KeyPage]:
        wanted, place = self._filter(filters), stored_key.after(after)
        shown = checks.flag(results, "results")
        if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
            raise InvalidInput("limit", f"must be from 1 to {LONGEST_PAGE}, got {limit!r}")
        page: KeyPage = yield Transaction(
            lambda sql: stored_keys.find(sql, wanted, after=place, limit=limit, results=shown),
            write=False,
        )
        return page

    def _filter(self, filters: KeyFilters) -> stored_keys.KeyFilter:
        checks.options(filters, KeyFilters.__optional_keys__)
        surface, scope = filters.get("surface"), filters.get("scope")
        key, state = filters.get("key"), filters.get("state")
        if state is not None and state not in KEY_STATES:
            raise InvalidInput("state", f"must be one of {', '.join(KEY_STATES)}, got {state!r}")
        return stored_keys.KeyFilter(
            tenant=self._tenant,
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
        """Remove everything stored for a tenant, or under one key of this one, keys included.

        `scope` removes the keys of one scope (a principal, say) with their stored answers, on all
        surfaces or on one; jobs stay. With `surface`, `key` does likewise.
        """
        return self._conductor.run(self._erase(key, tenant, scope, surface))

    async def aerase(
        self,
        *,
        key: str | None = None,
        tenant: str | None = None,
        scope: str | None = None,
        surface: str | None = None,
    ) -> Erased:
        """`erase`, awaited."""
        return await self._conductor.arun(self._erase(key, tenant, scope, surface))

    def _erase(
        self, key: str | None, tenant: str | None, scope: str | None, surface: str | None
    ) -> Procedure[Erased]:
        owner = self._tenant if tenant is None else checks.text(tenant, "tenant")
        if self._tenant not in {"", owner}:
            raise InvalidInput("tenant", f"must be {self._tenant!r} here, got {tenant!r}")
        wanted = None if key is None else checks.key(key, "key")
        if scope is None and surface is None:
            if (key is None) == (tenant is None):
                raise InvalidInput("erase", "needs either key=, tenant= or scope=")
            everything: Erased = yield Transaction(
                lambda sql: maintenance.erase(sql, owner, key=wanted)
            )
            return everything
        scopes = [None] if scope is None else stored_scopes(scope)
        of = None if surface is None else open_surface(surface)
        if scope is None and wanted is None:
            raise InvalidInput("surface", "needs key= or scope= beside it")
        claims = 0
        for within in scopes:
            erased: Erased = yield Transaction(
                partial(
                    maintenance.erase_scope,
                    tenant=owner,
                    scope=within,
                    surface=of,
                    key=wanted,
                )
            )
            claims += erased.claims
        return Erased(claims=claims)


def stored_scopes(scope: str) -> list[str | None]:
    """What a scope may be stored as: itself, and as a caller's id."""
    plain = stored_scope(scope)
    whose = scope_of(scope)
    return [plain] if whose == plain else [plain, whose]


def scope_of(principal: str) -> str:
    """The scope of one caller's keys. What could be taken for another's scope is digested."""
    plain = stored_scope(principal)
    if "\n" in plain or (plain == principal and plain.startswith(_DIGEST)):
        return f"{_DIGEST}{fingerprint(principal)}"
    return plain


def stored_scope(scope: object) -> str:
    """A scope as it is stored: one that is too long, or has a NUL in it, as its digest."""
    if isinstance(scope, str):
        size = len(scope.encode("utf-8", "replace"))
        if "\0" in scope or size > checks.KEY_BYTES:
            return f"{_DIGEST}{fingerprint(scope)}"
    return checks.text(scope, "scope")
