"""What a request only reads ends at its deadline, and leaves room for the keys of others."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias

import psycopg
import pytest

from onefold.operations.statement import Operation, Sql, Statement
from onefold.runtime import in_thread
from onefold.server.deadlines import Deadline, Deadlines
from tests.fixtures.colours import Store
from tests.fixtures.patience import HANG
from tests.fixtures.proof import both_databases
from tests.fixtures.served import Api

pytestmark = both_databases

Build: TypeAlias = Callable[[Sql], Operation[Any]]

READERS = 10
"""More than SQLite has threads, and as many as PostgreSQL has connections."""
ENDLESS = "with recursive n (x) as (select 1 union all select x + 1 from n) select max(x) from n"


def reads(text: str) -> Build:
    def build(sql: Sql) -> Operation[Any]:
        del sql
        return (yield Statement("read", text, {}))

    return build


@pytest.mark.parametrize("blocking", [False, True], ids=["awaited", "in a thread"])
async def test_a_read_ends_at_the_deadline_of_its_request(store: Store, *, blocking: bool) -> None:
    database = store.open().context.database
    await database.aidentity()
    lock = f"hashtext('{store.schema}')"
    endless = f"select pg_advisory_xact_lock_shared({lock})::text, pg_sleep(36000)::text"
    build = reads(endless if store.url.startswith("postgresql") else ENDLESS)

    def blocked() -> None:
        with pytest.raises(TimeoutError):
            database.transact(build, write=False)

    async def read() -> None:
        with suppress(TimeoutError), Deadline(Deadlines(), 0.1):
            # It waits for the thread, although it is cancelled.
            await (in_thread(blocked) if blocking else database.atransact(build, write=False))

    await asyncio.gather(*(read() for _ in range(READERS)))

    # The database has ended them itself: threads, connections and locks are free.
    await asyncio.wait_for(database.atransact(reads("select 1"), write=False), HANG / 2)
    if store.url.startswith("postgresql"):
        with psycopg.connect(store.url) as other:
            other.execute(f"set local lock_timeout = '{HANG / 2:.0f}s'".encode())
            other.execute(f"select pg_advisory_xact_lock({lock})".encode())


async def test_searches_leave_a_reader_for_the_keys_of_other_requests(store: Store) -> None:
    onefold = store.open()
    new = await onefold.api_keys.acreate("acme", scopes=["read"])
    database = onefold.context.database
    held, let_go = held_read(store)

    searches = [
        asyncio.ensure_future(database.atransact(held, write=False)) for _ in range(2 * READERS)
    ]
    await asyncio.sleep(0)
    try:
        admission = await asyncio.wait_for(onefold.api_keys.acheck(new.text), HANG / 2)
    finally:
        let_go()
        await asyncio.gather(*searches)

    assert admission.key == new.key


def held_read(store: Store) -> tuple[Build, Callable[[], None]]:
    """A read that waits, and the function that lets it go on."""
    if store.url.startswith("postgresql"):
        lock = f"hashtext('{store.schema}')"
        other = psycopg.connect(store.url, autocommit=True)
        other.execute(f"select pg_advisory_lock({lock})".encode())
        return reads(f"select pg_advisory_xact_lock_shared({lock})::text"), other.close
    event = threading.Event()

    def build(sql: Sql) -> Operation[Any]:
        event.wait(HANG)
        return (yield sql("has_api_keys", shard=0))

    return build, event.set


async def test_a_search_and_a_page_of_the_dashboard_have_the_deadline_of_a_request(
    store: Store,
) -> None:
    api = Api(store.open(), request_timeout=timedelta(microseconds=1))

    reply = await api("GET", "/v1/jobs")
    reply.problem(503, "took_too_long")
    assert reply.json["detail"] == "The request took too long. Send it again."
    page = await api("GET", "/jobs")

    assert (page.status, b"This took too long" in page.body) == (503, True)
