"""A database that is away: a request waits for it a little, and others then not at all."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from onefold import Onefold
from onefold.databases import reach
from onefold.databases.sqlite.database import SqliteDatabase
from onefold.web import asgi, wsgi
from onefold.web.http import HttpRequest
from onefold.web.webhooks import StandardWebhooks, Webhook
from tests.faults.proxy import Proxy
from tests.fixtures.patience import BRIEF
from tests.fixtures.place import Place, new_schema, postgres_place
from tests.http.test_scope import asked, caller, paid
from tests.http.test_wsgi import call
from tests.webhooks import senders

__all__ = ["new_schema", "postgres_place"]

NEVER = timedelta(hours=1)
Colour: TypeAlias = Literal["sync", "async"]
Said: TypeAlias = tuple[int, str | None]
"""The status of a response, and its Retry-After."""


class Weather:
    """A database that may be away."""

    def __init__(self, onefold: Onefold, proxy: Proxy, kind: str) -> None:
        self.onefold = onefold
        self._proxy = proxy
        self._kind = kind
        self._locks: list[sqlite3.Connection] = []

    def worsen(self) -> None:
        database = self.onefold.context.database
        if isinstance(database, SqliteDatabase):
            self._locks.append(sqlite3.connect(database.path, isolation_level=None))
            self._locks[0].execute("begin immediate")
        elif self._kind == "is silent":
            self._proxy.hold()
        else:
            self._proxy.refuse()

    def clear(self) -> None:
        for lock in self._locks:
            lock.close()
        self._proxy.let_go()
        self._proxy.pick_up()


@pytest.fixture(params=["refuses", "is silent", "is locked"])
def weather(
    request: pytest.FixtureRequest, postgres_place: Place, tmp_path: Path
) -> Iterator[Weather]:
    with closing(Proxy(postgres_place.url)) as proxy:
        url = f"sqlite:///{tmp_path}/away.db" if request.param == "is locked" else proxy.url
        onefold = Onefold(
            url, schema=postgres_place.schema, busy_timeout=NEVER, database_wait=BRIEF
        )
        yield Weather(onefold, proxy, request.param)


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    found: Colour = request.param
    return found


class Surfaces:
    """A route, a webhook and a call of the library."""

    def __init__(self, onefold: Onefold, colour: Colour) -> None:
        self._onefold = onefold
        self._is_async = colour == "async"
        self._arun = asgi.Idempotency(onefold, takeover="rerun")
        self._arun.add("POST", "/pay", principal=caller)
        self._run = wsgi.Idempotency(onefold, takeover="rerun")
        self._run.add("POST", "/pay", principal=lambda environ: "alice")
        provider = StandardWebhooks(senders.WHSEC)
        self._hook = Webhook(onefold, provider, name="orders", enqueue="order")

    async def pay(self, key: str) -> Said:
        if self._is_async:
            talk = await asked(self._arun.wrap(paid), "/pay", key=key)
            return talk.status, talk.headers.get("retry-after")
        sent = await asyncio.to_thread(call, self._run.wrap(_answer), key=key)
        return sent.status, sent.header("retry-after")

    async def receive(self, event_id: str) -> Said:
        request = _event(event_id)
        if self._is_async:
            response = await self._hook.areceive(request, b"{}")
        else:
            response = await asyncio.to_thread(self._hook.receive, request, b"{}")
        return response.status, dict(response.headers).get("Retry-After")

    async def enqueue(self) -> str:
        if self._is_async:
            return (await self._onefold.aenqueue("job")).id
        return (await asyncio.to_thread(self._onefold.enqueue, "job")).id


def _event(event_id: str) -> HttpRequest:
    return senders.standard(b"{}", datetime.now(UTC), event_id=event_id)


def _answer(_environ: Any, start: Any) -> list[bytes]:
    start("200 OK", [])
    return [b"paid"]


async def test_a_request_waits_briefly_then_not_at_all_and_a_call_as_long_as_it_says(
    weather: Weather,
    colour: Colour,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with weather.onefold as onefold:
        database, surfaces = onefold.context.database, Surfaces(onefold, colour)
        assert await surfaces.pay("before") == (200, None)
        assert await surfaces.receive("before") == (200, None)
        weather.worsen()

        assert await surfaces.pay("away") == (503, "1")

        # From here on, no wait ends before the database is back.
        database.database_wait = NEVER.total_seconds()
        monkeypatch.setattr(reach, "JUST", NEVER.total_seconds())
        # On SQLite, the other transaction may be that of the same event.
        refused = 409 if isinstance(database, SqliteDatabase) else 503
        assert await surfaces.receive("away") == (refused, "1")
        enqueueing = asyncio.create_task(surfaces.enqueue())
        monkeypatch.setattr(reach, "JUST", 0.0)
        paying = asyncio.create_task(surfaces.pay("back"))
        weather.clear()

        assert await paying == (200, None)
        assert await onefold.aget(await enqueueing) is not None

    assert not any(each.exc_info for each in caplog.records)
    lines = [each.getMessage() for each in caplog.records if each.name == "psycopg.pool"]
    lines += [each.getMessage() for each in caplog.records if each.name == "onefold"]
    away, back = lines
    assert "The database does not answer" in away
    assert "The database answers again" in back
