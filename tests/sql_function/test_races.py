"""Many connections race for one key, half of them from Python and half from SQL: one insert."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from onefold import Enqueued, Onefold
from tests.fixtures.patience import HANG
from tests.fixtures.proof import repetitions
from tests.race.waiting import until
from tests.sql_function.from_sql import call

RACERS = 8
ROUNDS = repetitions(10, soak=1000)
INSTANT = timedelta(microseconds=1)
HOUR = timedelta(hours=1)


class Race:
    """Callers that are connected and start together, every other one from SQL."""

    def __init__(self, url: str, schema: str, stack: ExitStack) -> None:
        self._schema = schema
        self._threads = stack.enter_context(ThreadPoolExecutor(RACERS))
        self._barrier = threading.Barrier(RACERS)
        self._racers: list[Callable[[dict[str, Any]], Enqueued]] = []
        for rank in range(RACERS):
            if rank % 2:
                # An object each, so that their calls are not batched.
                onefold = stack.enter_context(Onefold(url, schema=schema))
                self._racers.append(self._from_python(onefold))
            else:
                connection = stack.enter_context(psycopg.connect(url, autocommit=True))
                self._racers.append(self._from_sql(connection))
        self.run({"unique_key": "warm"})

    def _from_python(self, onefold: Onefold) -> Callable[[dict[str, Any]], Enqueued]:
        return lambda options: onefold.enqueue("race", {}, **options)

    def _from_sql(
        self, connection: psycopg.Connection[Any]
    ) -> Callable[[dict[str, Any]], Enqueued]:
        return lambda options: call(connection, self._schema, {"kind": "race", **options})

    def run(self, options: dict[str, Any]) -> str:
        """The id of the one new job, which every caller receives."""

        def enqueue(racer: Callable[[dict[str, Any]], Enqueued]) -> Enqueued:
            self._barrier.wait(HANG)
            return racer(options)

        answers = list(self._threads.map(enqueue, self._racers))
        assert sorted(answer.duplicate for answer in answers) == [False] + [True] * (RACERS - 1)
        assert not any(answer.mismatch for answer in answers)
        (job_id,) = {answer.id for answer in answers}
        return job_id


@pytest.fixture(scope="module")
def race(postgres_url: str, schema: str) -> Iterator[Race]:
    with ExitStack() as stack:
        yield Race(postgres_url, schema, stack)


def test_one_call_inserts_and_the_others_are_duplicates(race: Race, onefold: Onefold) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        for options in (
            {"unique_key": f"a{key}"},
            {"unique_key": f"b{key}", "unique_for": HOUR},
            {"unique_key": f"c{key}", "across_kinds": True},
            {"idempotency_key": f"d{key}"},
            {"unique_key": f"e{key}", "idempotency_key": f"e{key}"},
        ):
            assert onefold.get(race.run(options)) is not None
    assert len(onefold.find(kind="race", limit=10_000)) == 5 * ROUNDS


def test_one_call_replaces_a_holder_whose_time_is_over(race: Race, onefold: Onefold) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        old = onefold.enqueue("race", unique_key=key, unique_for=INSTANT)
        assert race.run({"unique_key": key}) != old.id

        published = onefold.enqueue("race", idempotency_key=key, idempotency_for=INSTANT)
        onefold.cancel(published.id)
        assert race.run({"idempotency_key": key}) != published.id


@pytest.mark.parametrize("second_from", ["python", "sql"])
@pytest.mark.parametrize("by", ["unique_key", "idempotency_key"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_second_call_waits_for_the_transaction_of_the_first(  # noqa: PLR0917
    postgres_url: str, schema: str, onefold: Onefold, by: str, end: str, second_from: str
) -> None:
    options: dict[str, Any] = {"kind": "race", by: "k"}
    with (
        psycopg.connect(postgres_url) as one,
        psycopg.connect(postgres_url) as two,
        ThreadPoolExecutor(1) as thread,
    ):
        if second_from == "sql":
            first = onefold.within(one).enqueue(**options)
            waiting = thread.submit(lambda: call(two, schema, options))
        else:
            first = call(one, schema, options)
            waiting = thread.submit(lambda: onefold.within(two).enqueue(**options))
        until(lambda: is_waiting(postgres_url, two), "the second to wait for the first")
        getattr(one, end)()
        second = waiting.result()
        two.commit()
    assert first.inserted
    if end == "commit":
        assert (second.id, second.duplicate) == (first.id, True)
    else:
        assert second.inserted
        assert onefold.get(first.id) is None
    assert onefold.get(second.id) is not None


def is_waiting(url: str, connection: psycopg.Connection[Any]) -> bool:
    with psycopg.connect(url, autocommit=True) as look:
        rows = look.execute(
            "select wait_event_type from pg_stat_activity where pid = %s",
            [connection.info.backend_pid],
        ).fetchall()
    return rows == [("Lock",)]
