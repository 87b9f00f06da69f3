"""`ApiKeys`: create, find, revoke and check API keys.

A check reads the database each time, so that a revocation counts at once. Checks that are made at
the same time share one statement.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

from onefold.databases.batching import HeldKeys, Item, TaskGroup
from onefold.errors import DatabaseBusy
from onefold.model import api_key
from onefold.model.api_key import Admission, ApiKey, NewApiKey, Scope, StoredApiKey
from onefold.model.limit import Rate, parse_rate
from onefold.model.timestamps import MICROSECOND, span
from onefold.operations import api_keys
from onefold.runtime import Batch, Procedure, Transact

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Iterable

    from onefold.app.context import Context
    from onefold.databases import Build

T = TypeVar("T")

MEMORY: Final = 1.0
"""Seconds for which it is remembered that there is no key at all."""


class ApiKeys:
    """The API keys of all tenants."""

    def __init__(self, context: Context) -> None:
        """On the database of `context`."""
        self._context = context
        self._checks = _KeyChecks(context)

    def create(
        self,
        tenant: str = "",
        *,
        scopes: Iterable[Scope],
        name: str = "",
        rate: str | tuple[int, timedelta] | Rate | None = None,
        expires_in: timedelta | None = None,
    ) -> NewApiKey:
        """Make a key for a tenant; its text is in the answer, and nowhere else.

        `publish` may publish and look at jobs, `work` may do what a worker does, `admin` anything.
        `rate` is how many requests it may make: "100/s".
        """
        made = self._context.runtime.run(_create(tenant, scopes, name, rate, expires_in))
        self._checks.some = True
        return made

    async def acreate(
        self,
        tenant: str = "",
        *,
        scopes: Iterable[Scope],
        name: str = "",
        rate: str | tuple[int, timedelta] | Rate | None = None,
        expires_in: timedelta | None = None,
    ) -> NewApiKey:
        """`create`, awaited."""
        made = await self._context.runtime.arun(_create(tenant, scopes, name, rate, expires_in))
        self._checks.some = True
        return made

    def find(self, tenant: str | None = None) -> list[ApiKey]:
        """All keys, or a tenant's, from the oldest on, with those that are revoked or expired."""
        return self._context.store.transact(_finding(tenant), write=False)

    async def afind(self, tenant: str | None = None) -> list[ApiKey]:
        """`find`, awaited."""
        return await self._context.store.atransact(_finding(tenant), write=False)

    def revoke(self, id: str) -> bool:  # noqa: A002 - what it is called
        """End a key at once and for good; False where there is none, or it was ended before.

        Takes its id, or its whole text: who has found a leaked one has nothing else.
        """
        return self._context.store.transact(_revoking(id))

    async def arevoke(self, id: str) -> bool:  # noqa: A002 - what it is called
        """`revoke`, awaited."""
        return await self._context.store.atransact(_revoking(id))

    def check(self, text: str) -> Admission:
        """Say whether a key counts that somebody has shown, and charge its rate for one request."""
        return self._context.runtime.run(_check(text))

    async def acheck(self, text: str) -> Admission:
        """`check`, awaited."""
        return await self._checks.check(text)

    def exist(self) -> bool:
        """Whether any key was ever made: revoked ones count, since to revoke must open no door.

        That there is none is remembered for a second, unless this object has made one itself.
        """
        return self._context.runtime.run(self._checks.are_any())

    async def aexist(self) -> bool:
        """`exist`, awaited."""
        return await self._context.runtime.arun(self._checks.are_any())


def _create(
    tenant: str,
    scopes: Iterable[Scope],
    name: str,
    rate: str | tuple[int, timedelta] | Rate | None,
    expires_in: timedelta | None,
) -> Procedure[NewApiKey]:
    limit = None if rate is None else parse_rate(rate)
    text, shown = api_key.new_key()
    wish = api_keys.NewApiKeyRow(
        shown=shown,
        tenant=api_key.key_tenant(tenant),
        name=api_key.key_name(name),
        scopes=api_key.key_scopes(scopes),
        rate=(None, None) if limit is None else (limit.count, limit.period // MICROSECOND),
        expires_in=None
        if expires_in is None
        else span(expires_in, "expires_in", least=MICROSECOND),
    )
    key: ApiKey = yield Transact(lambda sql: api_keys.create(sql, wish))
    return NewApiKey(key, text)


def _finding(tenant: str | None) -> Build[list[ApiKey]]:
    owner = None if tenant is None else api_key.key_tenant(tenant)
    return lambda sql: api_keys.find(sql, owner)


def _revoking(key: str) -> Build[bool]:
    key_id = api_key.key_id(key)
    return lambda sql: api_keys.revoke(sql, key_id)


def _check(text: str) -> Procedure[Admission]:
    shown = api_key.read_text(text)
    if shown is None:
        return Admission(None)
    (known,) = yield Transact(lambda sql: api_keys.read(sql, [shown.id]), write=False)
    return (yield from _admit(api_key.proven(shown, known)))


def _admit(key: ApiKey | None) -> Procedure[Admission]:
    """Charge a key that counts. One that was not proven is never charged: ids are no secrets."""
    if key is None or key.rate is None:
        return Admission(key)
    wait: int = yield Batch(Item(api_keys.charge, key.id, "charge", key.id))
    return Admission(key, wait * MICROSECOND)


class _KeyChecks:
    """Looks keys up for the tasks of an event loop, many at a time."""

    def __init__(self, context: Context) -> None:
        """On the database of `context`."""
        self._context = context
        self._lookups: WeakKeyDictionary[AbstractEventLoop, TaskGroup] = WeakKeyDictionary()
        self.some = False
        """True once there is a key: none is ever deleted."""
        self._none_until = 0.0

    async def check(self, text: str) -> Admission:
        """Look a key up, with those that others have been shown meanwhile."""
        shown = api_key.read_text(text)
        if shown is None:
            return Admission(None)
        known: StoredApiKey | None = await self._group().run(
            Item(api_keys.read, shown.id, "api_key", shown.id)
        )
        return await self._context.runtime.arun(_admit(api_key.proven(shown, known)))

    def are_any(self) -> Procedure[bool]:
        """Whether there is a key; a no is believed for a while, counted from the question on."""
        asked = time.monotonic()
        if self.some or asked < self._none_until:
            return self.some
        found: bool = yield Transact(api_keys.are_any, write=False)
        if found:
            self.some = True
        else:
            self._none_until = asked + MEMORY
        # Not what was read: one may have been made here since.
        return self.some

    def _group(self) -> TaskGroup:
        loop = asyncio.get_running_loop()
        lookups = self._lookups.get(loop)
        if lookups is None:
            lookups = self._lookups[loop] = TaskGroup(
                self._read, timeout=MEMORY, busy=_never_held, held=HeldKeys()
            )
        return lookups

    async def _read(self, build: Build[T], *, patient: bool, deadline: float | None = None) -> T:
        """A plain read: it waits for nobody's lock, and on SQLite not for the writer."""
        del patient, deadline
        return await self._context.store.atransact(build, write=False)


def _never_held() -> DatabaseBusy:
    return DatabaseBusy("a look at an API key waited for a lock.", waited=timedelta(0))
