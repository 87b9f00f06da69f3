"""Isolation levels: an answer where the database can give one, a typed refusal where it cannot."""

import asyncio
import sqlite3
import threading
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from onefold import Busy, DatabaseBusy, Job, Onefold, SerializationConflict
from onefold.claims import Replay, Won
from tests.fixtures.colours import Coloured, Dialect, Store
from tests.fixtures.connection import Connection, Kind
from tests.fixtures.connections import PLAIN, alongside, with_kinds
from tests.fixtures.patience import HANG

LEVELS = ["read committed", "repeatable read", "serializable"]

# And those whose library wraps what the driver says.
on_postgres = with_kinds(
    *(kind.name for kind in PLAIN if kind.dialect == "postgres"),
    "sqlalchemy-psycopg2-session",
    "sqlalchemy-async-asyncpg-session",
    "django-postgres",
)
on_sqlite = with_kinds(
    "sqlite3-begin", "aiosqlite-begin", "sqlalchemy-pysqlite-recipe", "django-sqlite"
)


async def snapshot(kind: Kind, store: Store, level: str) -> Connection:
    """A transaction of that level that has read already."""
    connection = await kind.connect(store)
    await connection.begin()
    await connection.execute(f"set transaction isolation level {level}")
    await connection.fetch("select 1")
    return connection


def take(onefold: Onefold, queue: str) -> list[Job]:
    return onefold.deliveries.take([queue], worker="w", lease=timedelta(minutes=1))


@on_postgres
@pytest.mark.parametrize("level", LEVELS)
async def test_a_duplicate_at_every_level_and_after_every_change(
    kind: Kind, store: Store, onefold: Coloured, level: str
) -> None:
    """What happened to the holder after the caller's snapshot decides."""
    outside: Onefold = store.open()
    for change in ("none", "inserted", "taken", "heartbeaten", "finished"):
        key: Any = {"unique_key": change, "queue": change}
        held = None if change == "inserted" else outside.enqueue("email", **key)
        jobs = take(outside, change) if change in {"heartbeaten", "finished"} else []
        connection = await snapshot(kind, store, level)
        match change:
            case "inserted":
                held = outside.enqueue("email", **key)
            case "taken":
                take(outside, change)
            case "heartbeaten":
                outside.deliveries.heartbeat(jobs, lease=timedelta(minutes=2))
            case "finished":
                outside.deliveries.finish(jobs)
            case _:
                pass
        within = onefold.within(connection.raw)

        if level != "read committed" and change in {"inserted", "taken", "heartbeaten"}:
            with pytest.raises(SerializationConflict, match="run the whole transaction again"):
                await within.enqueue("email", **key)
        else:
            answer = await within.enqueue("email", **key)
            assert held is not None
            assert answer.duplicate == (change != "finished"), change
            assert (answer.id == held.id) == (change != "finished"), change
        await connection.rollback()


@on_postgres
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_the_second_of_two_open_transactions_waits_for_the_first(
    kind: Kind, store: Store, level: str, end: str
) -> None:
    asked = threading.Event()
    onefold = Coloured(store.open(), kind.colour)

    async def second() -> Any:
        connection = await kind.open(store)
        try:
            await connection.begin()
            await connection.execute(f"set transaction isolation level {level}")
            await connection.fetch("select 1")
            asked.set()
            answer = await onefold.within(connection.raw).enqueue("email", unique_key="k")
            await connection.commit()
        except SerializationConflict as refusal:
            await connection.rollback()
            return refusal
        else:
            return answer
        finally:
            await connection.close()

    first = await kind.connect(store)
    await first.begin()
    holder = await onefold.within(first.raw).enqueue("email", unique_key="k")
    waiting = asyncio.create_task(alongside(kind.colour, second))
    assert await asyncio.to_thread(asked.wait, HANG)
    await _until_somebody_waits(store)
    await getattr(first, end)()
    answer = await asyncio.wait_for(waiting, HANG)

    if end == "rollback":
        assert answer.inserted
    elif level == "read committed":
        assert (answer.id, answer.duplicate) == (holder.id, True)
    else:
        assert isinstance(answer, SerializationConflict)


async def _until_somebody_waits(store: Store) -> None:
    """Until the server says that a backend of this schema's job table waits for a transaction."""
    question = (
        "select count(*) from pg_locks w join pg_locks h using (pid)"
        " where not w.granted and h.relation = to_regclass(%s)"
    )
    deadline = asyncio.get_running_loop().time() + HANG
    async with await psycopg.AsyncConnection.connect(store.url, autocommit=True) as connection:
        while asyncio.get_running_loop().time() < deadline:
            cursor = await connection.execute(question, [store.table("job")])
            if await cursor.fetchone() != (0,):
                return
    pytest.fail("nobody waits")


@on_postgres
@pytest.mark.parametrize("level", LEVELS)
async def test_a_joined_claim_at_every_level(
    kind: Kind, store: Store, onefold: Coloured, level: str
) -> None:
    """Busy needs no wait. Above READ COMMITTED, what was settled after the snapshot is refused."""
    outside = store.open()
    early, late = await snapshot(kind, store, level), await snapshot(kind, store, level)
    assert isinstance(await onefold.within(early.raw).claim("import", "sha"), Won)

    assert isinstance(await onefold.within(late.raw).claim("import", "sha"), Busy)

    await early.rollback()
    with outside.once("import", "sha") as claim:
        assert claim is not None
        claim.result = "done"
    if level == "read committed":
        assert isinstance(await onefold.within(late.raw).claim("import", "sha"), Replay)
    else:
        with pytest.raises(SerializationConflict):
            await onefold.within(late.raw).claim("import", "sha")
    await late.rollback()


@pytest.mark.parametrize("dialect", ["postgres"])
@pytest.mark.parametrize("level", LEVELS)
async def test_our_own_transactions_do_not_depend_on_the_servers_default(
    store: Store, dialect: Dialect, level: str
) -> None:
    """They say READ COMMITTED themselves, so that a duplicate is an answer and not a refusal."""
    setting = quote(f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}")
    url = f"{store.url}{'&' if '?' in store.url else '?'}options={setting}"
    with Onefold(url, schema=store.schema) as onefold, psycopg.connect(store.url) as raw:
        holder = store.open().within(raw).enqueue("email", unique_key="k")
        waiting = asyncio.create_task(asyncio.to_thread(onefold.enqueue, "email", unique_key="k"))
        await _until_somebody_waits(store)
        raw.commit()

        answer = await asyncio.wait_for(waiting, HANG)

        assert (answer.id, answer.duplicate) == (holder.id, True)


@on_sqlite
@pytest.mark.parametrize("has_changed", [True, False])
async def test_a_sqlite_transaction_that_began_by_reading_is_refused_after_another_commit(
    kind: Kind, store: Store, onefold: Coloured, *, has_changed: bool
) -> None:
    connection = await kind.connect(store)
    await connection.begin()
    await connection.fetch("select count(*) from onefold_job")
    if has_changed:
        store.open().enqueue("email", unique_key="other")
        with pytest.raises(SerializationConflict, match="began by reading"):
            await onefold.within(connection.raw).enqueue("email", unique_key="k")
        await connection.rollback()
        await connection.begin()

    assert (await onefold.within(connection.raw).enqueue("email", unique_key="k")).inserted
    await connection.commit()


@on_sqlite
async def test_a_sqlite_file_that_another_transaction_has_is_busy_after_the_callers_own_timeout(
    kind: Kind, store: Store, onefold: Coloured
) -> None:
    """Jobs say so; a joined claim says Busy, since the other may be at work on the same key."""
    holder, connection = sqlite3.connect(store.path), await kind.connect(store)
    holder.execute("begin immediate")
    await connection.execute("pragma busy_timeout = 50")
    await connection.begin()
    within = onefold.within(connection.raw)

    with pytest.raises(DatabaseBusy, match="write lock"):
        await within.enqueue("email")
    assert isinstance(await within.claim("import", "sha"), Busy)

    holder.rollback()
    assert (await within.enqueue("email")).inserted
    await connection.rollback()
    holder.close()
