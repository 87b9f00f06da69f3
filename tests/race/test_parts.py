"""A large batch is stored in parts on PostgreSQL: one is stored while the next one is prepared."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from onefold import Enqueued, EnqueuedMany, InvalidInput, NewJob, Onefold
from onefold.databases.postgres import libpq, transaction
from onefold.model import new_job
from onefold.model.ids import hash_of
from onefold.model.new_job import PART, in_parts
from onefold.operations.enqueue import enqueue_parts
from onefold.operations.statement import Sql
from onefold.operations.unique_keys import Restart
from tests.faults.callers import Caller, Colour
from tests.fixtures.place import Place
from tests.fixtures.proof import proved, repetitions
from tests.fixtures.steps import Steps
from tests.race.crew import Crew, Racer, race_by, values
from tests.race.waiting import Second, until

SIZE = 3 * PART + 7
ROUNDS = repetitions(6, soak=200)
SMALL = 4
"""A part in tests that need many of them."""


@pytest.fixture(params=["sync", "async"])
def caller(onefold: Onefold, request: pytest.FixtureRequest) -> Iterator[Caller]:
    colour: Colour = request.param
    caller = Caller(onefold, colour)
    yield caller
    caller.close()


def keyed(count: int, keys: int) -> list[NewJob]:
    jobs = [NewJob("a", {"n": n}, unique_key=f"k:{n % keys}") for n in range(count)]
    random.Random(count).shuffle(jobs)
    return jobs


def first_by_key(jobs: list[NewJob], answers: EnqueuedMany) -> dict[str | None, Enqueued]:
    """The answer of the first item of each key, which all later items of the key have, too."""
    first: dict[str | None, Enqueued] = {}
    for job, answer in zip(jobs, answers, strict=True):
        assert first.setdefault(job.unique_key, answer).id == answer.id
    return first


def test_jobs_without_keys_are_stored_in_their_order_at_one_time(caller: Caller) -> None:
    answers = caller("enqueue_many", [NewJob("a", {"n": n}) for n in range(SIZE)])

    jobs = caller("find", limit=SIZE).jobs
    assert [job.id for job in jobs] == [answer.id for answer in answers]
    assert [job.payload["n"] for job in jobs] == list(range(SIZE))
    assert len({job.run_at for job in jobs}) == 1


def test_each_item_is_answered_in_its_place(caller: Caller) -> None:
    jobs = keyed(SIZE, keys=2 * PART + 9)

    answers = caller("enqueue_many", jobs)
    again = caller("enqueue_many", jobs)

    assert (answers.inserted, again.inserted) == (2 * PART + 9, 0)
    first = first_by_key(jobs, answers)
    stored = {job.id: job.unique_key for job in caller("find", limit=SIZE)}
    assert stored == {answer.id: key for key, answer in first.items() if not answer.duplicate}
    assert [answer.id for answer in again] == [answer.id for answer in answers]
    assert all(answer.duplicate for answer in again)


def test_a_key_that_fills_several_parts_is_stored_once(caller: Caller) -> None:
    jobs = [*keyed(PART, keys=PART), *[NewJob("a", unique_key="k:x")] * (3 * PART)]

    answers = caller("enqueue_many", jobs)

    assert answers.inserted == PART + 1
    assert len({answer.id for answer in answers}) == PART + 1


def test_a_key_whose_window_is_over_is_free(caller: Caller) -> None:
    """Its part needs further statements."""
    holders = {
        caller("enqueue", "a", unique_key=f"k:{n}", unique_for=timedelta(microseconds=1)).id
        for n in (1, SIZE - 1)
    }

    answers = caller("enqueue_many", keyed(SIZE, keys=SIZE))

    assert answers.inserted == SIZE
    assert holders.isdisjoint(answer.id for answer in answers)


def test_an_ordered_group_keeps_the_order_of_the_items(onefold: Onefold) -> None:
    jobs = [NewJob("a", {"n": n}, unique_key=f"{-n:06}", group_key="g") for n in range(2 * PART)]

    answers = onefold.enqueue_many(jobs)

    made = sorted(answers, key=lambda answer: answer.id[:13] + answer.id[19:])
    assert [answer.id for answer in made] == [answer.id for answer in answers]


BAD: Any = object()


@pytest.mark.parametrize("bad", [NewJob("a", BAD, unique_key="z"), NewJob("a", unique_key="")])
def test_bad_input_in_a_later_part_names_its_item_and_stores_nothing(
    caller: Caller, caplog: pytest.LogCaptureFixture, bad: NewJob
) -> None:
    jobs = keyed(SIZE, keys=SIZE)
    jobs[SIZE - 1] = jobs[PART + 3] = bad

    with pytest.raises(InvalidInput) as raised:
        caller("enqueue_many", jobs)

    assert raised.value.item == PART + 3
    assert not caller("find").jobs
    # The connection is not lost with it.
    assert "discarding" not in caplog.text
    assert caller("enqueue_many", keyed(SIZE, keys=SIZE)).inserted == SIZE


@pytest.mark.parametrize(
    "jobs",
    [
        [NewJob("a")] * (2 * PART - 1),
        [*[NewJob("a")] * (2 * PART), NewJob("a", unique_key="k")],
        [*[NewJob("a")] * (2 * PART), NewJob("a", idempotency_key="k")],
        [*keyed(2 * PART, keys=9), NewJob("b", unique_key="k")],
        [*keyed(2 * PART, keys=9), NewJob("a", unique_key="k", across_kinds=True)],
        [*keyed(2 * PART, keys=9), NewJob("a", unique_key=BAD)],
        [*[NewJob("a")] * (2 * PART), BAD],
    ],
    ids=["small", "some keys", "publish key", "two kinds", "across kinds", "wrong key", "no job"],
)
def test_other_batches_are_prepared_at_once(jobs: list[NewJob]) -> None:
    assert in_parts(jobs, "", now=0) is None


def test_a_key_that_occurs_twice_does_not_prevent_a_part() -> None:
    parts = in_parts(keyed(8 * PART, keys=4 * PART), "", now=0)

    assert parts is not None
    assert len(parts) >= 7


def own_steps(jobs: list[NewJob]) -> Steps[list[Enqueued]]:
    parts = in_parts(jobs, "", now=0)
    assert parts is not None
    return Steps(enqueue_parts(Sql("postgres", restarts=True), parts))


def test_a_part_that_needs_several_statements_is_not_sent_ahead() -> None:
    """Its second statement would lock its keys after those of the next part."""
    jobs = [NewJob("a", {"text": "x" * 15_000}, unique_key=f"k:{n:04}") for n in range(2 * PART)]

    assert not own_steps(jobs).asks("store_keyed_jobs").ahead
    assert own_steps(keyed(2 * PART, keys=2 * PART)).asks("store_keyed_jobs").ahead


def test_a_later_part_of_one_key_restarts() -> None:
    same = [NewJob("a", unique_key=key) for key in "yz" for _ in range(PART)]
    run = own_steps([*keyed(PART // 2, keys=PART // 2), *same])

    with pytest.raises(Restart):
        run.answer("store_keyed_jobs", [(None,) * 9])


def test_jobs_without_keys_have_one_shard() -> None:
    parts = in_parts([NewJob("a")] * SIZE, "", now=0)

    assert parts is not None
    assert len({hash_of(item.request.id) for item in parts.items}) == 1


@pytest.mark.parametrize("name", ["_send", "_next"])
@pytest.mark.parametrize("at", range(5))
def test_an_error_between_two_messages_ends_the_connection(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, name: str, at: int
) -> None:
    """What was sent ahead cannot be read any more: the end of a message may be missing."""
    for number in range(4):  # prepare the statement
        caller("enqueue_many", [NewJob("a", unique_key=f"{number}:{n}") for n in range(3)])
    stored = len(caller("find").jobs)
    step, calls = getattr(libpq, name), count()

    def fail(pq: Any, *rest: Any) -> Any:
        if pq.pipeline_status and pq.transaction_status and next(calls) == at:
            raise MemoryError
        return step(pq, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(libpq, name, fail)
        with pytest.raises(MemoryError):
            caller("enqueue_many", keyed(SIZE, keys=SIZE))

    assert next(calls) > at
    assert len(caller("find").jobs) == stored
    assert caller("enqueue_many", keyed(SIZE, keys=SIZE)).inserted == SIZE


def test_a_begin_that_fails_stores_no_part(onefold: Onefold) -> None:
    """A handler may have removed our prepared statements from the connection."""
    for number in range(4):
        onefold.enqueue_many([NewJob("a", unique_key=f"{number}:{n}") for n in range(3)])
    stored = len(onefold.find())
    database: Any = onefold.context.database
    with database.handler_transaction() as connection:
        connection.execute("deallocate all")
    jobs = keyed(SIZE, keys=SIZE)
    jobs[-1] = NewJob("a", BAD, unique_key="z")

    with pytest.raises(InvalidInput):
        onefold.enqueue_many(jobs)

    assert len(onefold.find(limit=SIZE)) == stored


@pytest.mark.parametrize("pipelines", [True, False])
def test_a_clock_is_read_once(
    postgres_place: Place, monkeypatch: pytest.MonkeyPatch, *, pipelines: bool
) -> None:
    monkeypatch.setattr(transaction, "PIPELINES", pipelines)
    monkeypatch.setattr(libpq, "PIPELINES", pipelines)
    ticks = count(1_800_000_000)
    with postgres_place.open(clock=lambda: datetime.fromtimestamp(next(ticks), UTC)) as onefold:
        onefold.enqueue_many(keyed(SIZE, keys=SIZE))
        run_ats = {job.run_at for job in onefold.find(limit=SIZE)}

    assert len(run_ats) == 1


async def keep_by_key(racer: Racer, prefix: str) -> dict[str, str]:
    new_job.PART = SMALL  # in the processes, too
    order = [f"{prefix}:{number}" for number in range(6 * SMALL)]
    random.Random(f"{prefix} {racer.rank}").shuffle(order)
    answers = await racer.calls.enqueue_many([NewJob("race", unique_key=key) for key in order])
    return {key: answer.id for key, answer in zip(order, answers, strict=True)}


@pytest.mark.parametrize("racers", ["processes", *proved("threads", "tasks")])
def test_rivals_agree_on_every_key(
    postgres_place: Place, crew: Crew, racers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_job, "PART", SMALL)
    for _ in range(ROUNDS):
        prefix = uuid4().hex
        answers = race_by(racers, crew, postgres_place, keep_by_key, prefix, size=4)
        found = values(answers)
        assert all(one == found[0] for one in found)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_an_open_insert_of_a_later_part_is_waited_for(
    onefold: Onefold, postgres_place: Place, end: str
) -> None:
    jobs = keyed(SIZE, keys=SIZE)
    with postgres_place.connection() as connection:
        connection.execute("begin")
        held = onefold.within(connection).enqueue("a", {"n": 700}, unique_key="k:700")

        with Second(postgres_place, lambda second: second.enqueue_many(jobs)) as second:
            second.is_waiting()
            connection.execute(end)
            answers = second.answer()

    answer = first_by_key(jobs, answers)["k:700"]
    assert answer.duplicate is (end == "commit")
    assert (answer.id == held.id) is (end == "commit")
    assert answers.inserted == SIZE - (end == "commit")


def test_a_backend_that_ends_meanwhile_makes_one_batch(
    postgres_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_job, "PART", SMALL)
    name = f"ended_{uuid4().hex[:12]}"
    query = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s"
    dice = random.Random(name)

    def end_backends(observer: psycopg.Connection[Any], after: float) -> None:
        Event().wait(after)
        observer.execute(query, [name])

    with (
        psycopg.connect(postgres_place.url, autocommit=True) as observer,
        postgres_place.open(name=name) as onefold,
    ):
        onefold.find()  # a connection that ends before the first call is an error
        for turn in range(5 * ROUNDS):
            jobs = [NewJob("a", unique_key=f"{turn}:{n}") for n in range(20 * SMALL)]
            thread = Thread(target=end_backends, args=(observer, dice.uniform(0, 0.02)))
            thread.start()
            answers = onefold.enqueue_many(jobs)
            thread.join()
            assert answers.inserted == len(jobs)
            assert [job.id for job in onefold.enqueue_many(jobs)] == [job.id for job in answers]


def test_a_process_that_freezes_between_two_parts_is_idle_in_its_transaction(
    postgres_place: Place,
) -> None:
    """So a timeout of the server ends the transaction, and its keys are free again."""
    name = f"frozen_{uuid4().hex[:12]}"
    query = "select state from pg_stat_activity where application_name = %s and state <> 'active'"
    states: list[Any] = []

    def clock() -> datetime:
        # Called after the begin, and while the second part is prepared.
        if is_armed.is_set():
            with psycopg.connect(postgres_place.url, autocommit=True) as observer:
                until(lambda: observer.execute(query, [name]).rowcount == 1, "it stays active")
                states.append(observer.execute(query, [name]).fetchone())
        return datetime.now(UTC)

    is_armed = Event()
    with postgres_place.open(name=name, clock=clock) as onefold:
        onefold.enqueue("a")
        is_armed.set()
        jobs = [NewJob("a", {"n": n}) for n in range(2 * PART - 1)]
        onefold.enqueue_many([*jobs, NewJob("a", run_at=datetime.now(UTC))])
        is_armed.clear()
    assert states[:2] == [("idle in transaction",)] * 2
