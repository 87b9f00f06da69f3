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

from onefold.app.context import Noun
from onefold.databases.batching import HeldKeys, Item, TaskGroup
from onefold.errors import DatabaseBusy
from onefold.model import api_key
from onefold.model.api_key import Admission, ApiKey, NewApiKey, Scope, StoredApiKey
from onefold.model.limit import Rate, parse_rate
from onefold.model.timestamps import MICROSECOND, span
from onefold.operations import api_keys
from onefold.runtime import FindByKey, Procedure, awaited, batch, call, transact

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Iterable

    from onefold.app.context import Context
    from onefold.databases import Build

T = TypeVar("T")

MEMORY: Final = 1.0
"""Seconds for which the absence of keys is cached."""


class ApiKeys(Noun):
    """The API keys of all tenants."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._lookups: WeakKeyDictionary[AbstractEventLoop, TaskGroup] = WeakKeyDictionary()
        self._some = False
        """True if there is a key. It stays true, because keys are never deleted."""
        self._none_until = 0.0

    @call
    def create(
        self,
        tenant: str = "",
        *,
        scopes: Iterable[Scope],
        name: str = "",
        rate: str | tuple[int, timedelta] | Rate | None = None,
        expires_in: timedelta | None = None,
    ) -> Procedure[NewApiKey]:
        """Create a key for a tenant. The key's text is only in this result; it is not stored.

        `read` may read everything except secrets, `publish` may publish and read jobs, `work` may
        do what a worker does, `admin` may do everything. `rate` limits the requests: "100/s".
        """
        limit = None if rate is None else parse_rate(rate)
        if expires_in is not None:
            span(expires_in, "expires_in", least=MICROSECOND)
        text, shown = api_key.new_key()
        row = api_keys.NewApiKeyRow(
            shown=shown,
            tenant=api_key.key_tenant(tenant),
            name=api_key.key_name(name),
            scopes=api_key.key_scopes(scopes),
            rate=(None, None) if limit is None else (limit.count, limit.period // MICROSECOND),
            expires_in=None if expires_in is None else expires_in // MICROSECOND,
        )
        key = yield from transact(lambda sql: api_keys.create(sql, row))
        self._some = True
        return NewApiKey(key, text)

    acreate: Final = awaited(create)

    @call
    def find(self, tenant: str | None = None) -> Procedure[list[ApiKey]]:
        """All keys, or the keys of a tenant, oldest first; with revoked and expired keys."""
        owner = None if tenant is None else api_key.key_tenant(tenant)
        return transact(lambda sql: api_keys.find(sql, owner), write=False)

    afind: Final = awaited(find)

    @call
    def get(self, id: str) -> Procedure[ApiKey | None]:  # noqa: A002 - its name in the API
        """A key by its id, if it is valid: neither revoked nor expired."""
        key_id = api_key.key_id(id)
        (known,) = yield from transact(lambda sql: api_keys.read(sql, [key_id]), write=False)
        return known.key if known is not None and known.live else None

    aget: Final = awaited(get)

    @call
    def revoke(self, id: str) -> Procedure[bool]:  # noqa: A002 - its name in the API
        """Revoke a key at once and for good. False if there is no such key to revoke.

        Takes the id, or the whole text: a leaked key is often only known by its text.
        """
        key_id = api_key.key_id(id)
        return transact(lambda sql: api_keys.revoke(sql, key_id))

    arevoke: Final = awaited(revoke)

    def check(self, text: str) -> Admission:
        """Check the text of a key, and charge its rate for one request."""
        return self._context.runtime.run(_check(text))

    async def acheck(self, text: str) -> Admission:
        """`check`, awaited."""
        shown = api_key.read_text(text)
        if shown is None:
            return Admission(None)
        known: StoredApiKey | None = await self._group().run(
            Item(api_keys.read, shown.id, "api_key", shown.id)
        )
        key = api_key.proven(shown, known)
        if key is None or key.rate is None:
            return Admission(key)
        return await self._context.runtime.arun(_admit(key))

    def exist(self) -> bool:
        """Whether a key was ever created. Revoked keys count: to revoke must not open a server.

        The absence of keys is cached for a second, unless this object has created one.
        """
        return self._context.runtime.run(self._are_any())

    async def aexist(self) -> bool:
        """`exist`, awaited."""
        # For speed: a server without keys looks at each request.
        if time.monotonic() < self._none_until:
            return self._some
        return await self._context.runtime.arun(self._are_any())

    def _are_any(self) -> Procedure[bool]:
        """Whether there is a key; False is cached for a while, from the start of the query."""
        started = time.monotonic()
        if self._some or started < self._none_until:
            return self._some
        found = yield FindByKey(api_keys.are_any)
        if found:
            self._some = True
        else:
            self._none_until = started + MEMORY
        # Not `found`: this process may have created a key since the query.
        return self._some

    def _group(self) -> TaskGroup:
        loop = asyncio.get_running_loop()
        lookups = self._lookups.get(loop)
        if lookups is None:
            lookups = self._lookups[loop] = TaskGroup(self._read, HeldKeys(MEMORY, _never_held))
        return lookups

    async def _read(self, build: Build[T], *, patient: bool, deadline: float | None = None) -> T:
        """A plain read: it waits for no lock, and on SQLite not for the writer."""
        del patient, deadline
        return await self._context.store.alook(build)


def _check(text: str) -> Procedure[Admission]:
    shown = api_key.read_text(text)
    if shown is None:
        return Admission(None)
    (known,) = yield from transact(lambda sql: api_keys.read(sql, [shown.id]), write=False)
    return (yield from _admit(api_key.proven(shown, known)))


def _admit(key: ApiKey | None) -> Procedure[Admission]:
    """Charge a valid key. A key without proof is not charged, because ids are not secret."""
    if key is None or key.rate is None:
        return Admission(key)
    wait = yield from batch(Item(api_keys.charge, key.id, "charge", key.id))
    return Admission(key, wait * MICROSECOND)


def _never_held() -> DatabaseBusy:
    return DatabaseBusy("a look at an API key waited for a lock.", waited=timedelta(0))
