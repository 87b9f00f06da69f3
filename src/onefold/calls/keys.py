"""What an operator does with stored keys: look at them, and erase them with their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.calls.claims import open_surface
from onefold.calls.procedure import Conductor, Procedure, Transaction
from onefold.errors import InvalidInput
from onefold.model import names
from onefold.operations import maintenance

if TYPE_CHECKING:
    from onefold.operations.maintenance import Erased


class KeyCalls:
    """Keys of every surface, seen from outside."""

    _conductor: Conductor
    _tenant: str

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
        owner = self._tenant if tenant is None else names.text(tenant, "tenant")
        if self._tenant not in {"", owner}:
            raise InvalidInput("tenant", f"must be {self._tenant!r} here, got {tenant!r}")
        wanted = None if key is None else names.key(key, "key")
        if scope is None and surface is None:
            if (key is None) == (tenant is None):
                raise InvalidInput("erase", "needs either key=, tenant= or scope=")
            everything: Erased = yield Transaction(
                lambda sql: maintenance.erase(sql, owner, key=wanted)
            )
            return everything
        within = None if scope is None else names.text(scope, "scope")
        of = None if surface is None else open_surface(surface)
        if within is None and wanted is None:
            raise InvalidInput("surface", "needs key= or scope= beside it")
        erased: Erased = yield Transaction(
            lambda sql: maintenance.erase_scope(sql, owner, scope=within, surface=of, key=wanted)
        )
        return erased
