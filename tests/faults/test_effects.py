"""A commit of a handler's own whose answer was lost: it is asked what became of it."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from onefold import Onefold, Run
from tests.effects.deliveries import ColouredRun, execute, in_colour
from tests.faults.callers import Colour
from tests.faults.proxy import Proxy

LEASE = timedelta(minutes=1)


class Effects:
    """Rows that handlers write."""

    def __init__(self, observer: psycopg.Connection, schema: str) -> None:
        self._observer = observer
        self._table = sql.Identifier(schema, "effect")
        # What is wrong is found out by the commit.
        table = "create table {} (number int unique deferrable initially deferred)"
        observer.execute(sql.SQL(table).format(self._table))

    async def insert(self, connection: Any) -> None:
        await execute(connection, sql.SQL("insert into {} values (1)").format(self._table))

    @property
    def count(self) -> int:
        query = sql.SQL("select count(*) from {}").format(self._table)
        row = self._observer.execute(query).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def effects(observer: psycopg.Connection, migrated: str) -> Effects:
    return Effects(observer, migrated)


@pytest.fixture
def perform(
    proxy: Proxy, migrated: str, colour: Colour
) -> Callable[[Callable[[Onefold, ColouredRun], Coroutine[Any, Any, None]]], None]:
    """Runs a play with the delivery of a job, behind the wire."""

    def perform(play: Callable[[Onefold, ColouredRun], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            async with Onefold(proxy.url, schema=migrated) as onefold:
                onefold.enqueue("work")
                (job,) = onefold.deliveries.take(worker="worker", lease=LEASE)
                run = Run(onefold.context, job, lease=LEASE, worker="worker")
                await play(onefold, ColouredRun(run, colour))

        asyncio.run(whole())

    return perform


def test_a_job_whose_own_commit_was_not_answered_is_known_to_be_completed(
    proxy: Proxy, effects: Effects, perform: Any, colour: Colour
) -> None:
    async def play(onefold: Onefold, run: ColouredRun) -> None:
        async with run.transaction() as tx:
            await effects.insert(tx)
            proxy.lose_answers()

        job = onefold.get(run.target.id)
        assert job is not None
        assert (run.target.completed, job.state) == (True, "completed")

    perform(play)
    assert (proxy.lost, effects.count) == (1, 1)


def test_a_job_whose_own_commit_was_refused_is_not(
    effects: Effects, perform: Any, colour: Colour
) -> None:
    async def play(onefold: Onefold, run: ColouredRun) -> None:
        async def insert_twice() -> None:
            async with run.transaction() as tx:
                await effects.insert(tx)
                await effects.insert(tx)

        with pytest.raises(psycopg.errors.UniqueViolation):
            await insert_twice()

        job = onefold.get(run.target.id)
        assert job is not None
        assert (run.target.completed, job.state) == (False, "running")

    perform(play)
    assert effects.count == 0


def test_a_step_whose_own_commit_was_not_answered_is_known_to_be_over(
    proxy: Proxy, effects: Effects, perform: Any, colour: Colour
) -> None:
    async def pay(tx: Any) -> int:
        await effects.insert(tx)
        proxy.lose_answers()
        return 7

    async def play(onefold: Onefold, run: ColouredRun) -> None:
        assert await run.transact("pay", in_colour(pay, colour)) == 7
        assert [step.state for step in onefold.deliveries.steps(run.target.id)] == ["finished"]

    perform(play)
    assert (proxy.lost, effects.count) == (1, 1)
