"""One key, many connections, half of them from Python and half from SQL: one insert, no error."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

from onefold import Enqueued, Onefold
from onefold.model.job import NewJob
from tests.fixtures.soak import repetitions
from tests.race.waiting import until
from tests.sql_function.from_sql import answered, call, call_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RACERS = 8
ROUNDS = repetitions(25, soak=1000)
INSTANT = timedelta(microseconds=1)
HOUR = timedelta(hours=1)


class Field:
    """Racers that are connected and start together, every other one from SQL."""

    def __init__(self, url: str, schema: str, stack: ExitStack) -> None:
        self.schema = schema
        self._threads = stack.enter_context(ThreadPoolExecutor(RACERS))
        self._barrier = threading.Barrier(RACERS)
        self._racers: list[Callable[[dict[str, Any]], Enqueued]] = []
        for rank in range(RACERS):
            if rank % 2:
                # Not gathered with its fellows: each has a connection of its own.
                onefold = stack.enter_context(Onefold(url, schema=schema))
                self._racers.append(self._from_python(onefold))
            else:
                connection = stack.enter_context(psycopg.connect(url, autocommit=True))
                self._racers.append(self._from_sql(connection))
        self.race({"unique_key": "warm"})

    def _from_python(self, onefold: Onefold) -> Callable[[dict[str, Any]], Enqueued]:
        return lambda options: onefold.enqueue("race", {}, **options)

    def _from_sql(
        self, connection: psycopg.Connection[Any]
    ) -> Callable[[dict[str, Any]], Enqueued]:
        return lambda options: answered(call(connection, self.schema, {"kind": "race", **options}))

    def race(self, options: dict[str, Any]) -> list[Enqueued]:
        """The answers of all; an error of one is raised here."""

        def run(racer: Callable[[dict[str, Any]], Enqueued]) -> Enqueued:
            self._barrier.wait(30)
            return racer(options)

        return list(self._threads.map(run, self._racers))


@pytest.fixture(scope="module")
def field(postgres_url: str, schema: str) -> Iterator[Field]:
    with ExitStack() as stack:
        yield Field(postgres_url, schema, stack)


def winner(answers: list[Enqueued]) -> str:
    """The id of the one new job, which is everybody's answer."""
    assert sorted(answer.duplicate for answer in answers) == [False] + [True] * (RACERS - 1)
    assert not any(answer.mismatch for answer in answers)
    (job_id,) = {answer.id for answer in answers}
    return job_id


KEYS: dict[str, dict[str, Any]] = {
    "unique": {"unique_key": "{key}"},
    "unique for an hour": {"unique_key": "{key}", "unique_for": HOUR},
    "across kinds": {"unique_key": "{key}", "across_kinds": True},
    "publish": {"idempotency_key": "{key}"},
    "both": {"unique_key": "{key}", "idempotency_key": "{key}"},
    "replace": {"unique_key": "{key}", "on_duplicate": "replace"},
    "rerun": {"unique_key": "{key}", "on_duplicate": "rerun"},
}


def options_of(name: str) -> dict[str, Any]:
    key = uuid4().hex
    return {
        option: value.format(key=key) if isinstance(value, str) else value
        for option, value in KEYS[name].items()
    }


@pytest.mark.parametrize("name", KEYS)
def test_one_is_new_and_the_others_are_its_duplicates(
    field: Field, onefold: Onefold, name: str
) -> None:
    for _ in range(ROUNDS):
        options = options_of(name)
        job_id = winner(field.race(options))
        assert onefold.get(job_id) is not None
    assert len(onefold.find(kind="race", limit=10_000)) == ROUNDS


def test_of_those_who_meet_a_window_that_is_over_one_is_new(field: Field, onefold: Onefold) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        old = onefold.enqueue("race", unique_key=key, unique_for=INSTANT)
        assert winner(field.race({"unique_key": key})) != old.id


def test_of_those_who_meet_a_holder_whose_life_is_over_one_is_new(
    field: Field, onefold: Onefold, connection: psycopg.Connection[Any]
) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        ((old,),) = connection.execute(
            "select id::text from onefold_enqueue('race', unique_key => %s, expires_at => now())",
            [key],
        ).fetchall()
        assert winner(field.race({"unique_key": key})) != old
        job = onefold.get(old)
        assert job is not None
        assert (job.state, job.reason) == ("dead", "expired")


def test_of_those_who_meet_a_publish_key_that_is_over_one_is_new(
    field: Field, onefold: Onefold
) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        old = onefold.enqueue("race", idempotency_key=key, idempotency_for=INSTANT)
        onefold.cancel(old.id)
        assert winner(field.race({"idempotency_key": key})) != old.id


# --- two open transactions ------------------------------------------------------------------------

ENDS = pytest.mark.parametrize("end", ["commit", "rollback"])
BY = pytest.mark.parametrize("by", ["unique_key", "idempotency_key"])


@ENDS
@BY
@pytest.mark.parametrize("second_from", ["python", "sql"])
def test_the_second_waits_for_the_first_and_is_its_duplicate_or_new(  # noqa: PLR0917
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
            waiting = thread.submit(lambda: answered(call(two, schema, options)))
        else:
            first = answered(call(one, schema, options))
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


def test_batches_that_share_keys_in_different_orders_do_not_deadlock(
    field: Field, postgres_url: str, onefold: Onefold
) -> None:
    """Whoever sends them: keys are asked for in one order, shard by shard."""
    keys = ["b", "a", "Z", "ü", "e", "d"]
    batch = [NewJob("race", unique_key=key, idempotency_key=key) for key in keys]
    jobs = [{"kind": "race", "unique_key": key, "idempotency_key": key} for key in reversed(keys)]
    with ThreadPoolExecutor(2) as threads, psycopg.connect(postgres_url) as connection:
        for _ in range(ROUNDS):
            onefold.erase(tenant="")
            library = threads.submit(onefold.enqueue_many, batch)
            arguments = {"jobs": json.dumps(jobs)}
            rows = call_all(connection, field.schema, "onefold_enqueue_many", arguments)
            connection.commit()
            inserted = sum(row["inserted"] for row in rows)
            assert library.result().inserted + inserted == len(keys)
            assert {str(row["id"]) for row in rows} == {answer.id for answer in library.result()}
