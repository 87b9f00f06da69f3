"""What the model has found, by name: the machine again, but with steps that are written down."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.model.job_records import Asked, Policy
from tests.model.store import Store
from tests.model.test_jobs import JobMachine

KEYED = Asked("mail", 1, "left", unique_key="k")
OTHER = Asked("mail", 2, "left", unique_key="k")
RERUN = Policy("rerun")


@pytest.fixture
def machine(store: Store) -> Iterator[JobMachine]:
    """The machine: every step compares answers, and the end what is stored."""
    machine = JobMachine(store)
    yield machine
    machine.the_same_is_stored()
    machine.teardown()


def enqueue(machine: JobMachine, *asked: Asked, policy: Policy | None = None) -> list[str]:
    made = machine._enqueue("one", asked, policy or Policy())
    machine.the_same_is_stored()
    return list(made.values)


def take(machine: JobMachine) -> tuple[str, int]:
    taken: list[tuple[str, int]] = list(machine.take(("left",), 1, 60).values)
    return taken[0]


def states(machine: JobMachine) -> list[str]:
    return [record.state for record in machine.model.records.values()]


@pytest.mark.parametrize("scope", ["active", "exists"])
def test_a_replay_meets_the_successor_that_got_the_key(machine: JobMachine, scope: str) -> None:
    (first,) = enqueue(machine, replace(KEYED, unique_while=scope))
    delivery = take(machine)
    enqueue(machine, OTHER, policy=RERUN)
    machine.end_many("bury", [delivery], None)

    machine.replay("one", first, fresh=False)

    assert states(machine) == ["dead", "queued"]


def test_a_replay_has_its_key_again_when_the_successor_has_ended(machine: JobMachine) -> None:
    (first,) = enqueue(machine, KEYED)
    delivery = take(machine)
    enqueue(machine, OTHER, policy=RERUN)
    machine.end_many("bury", [delivery], None)
    machine.end_many("finish", [take(machine)], None)

    machine.replay("one", first, fresh=False)
    enqueue(machine, KEYED)

    assert states(machine) == ["queued", "completed"]


@pytest.mark.parametrize(
    "promised", [{"unique_while": "exists"}, {"unique_for": 60}, {"unique_for": 10}]
)
def test_a_successor_keeps_what_its_predecessor_promised(
    machine: JobMachine, promised: dict[str, Any]
) -> None:
    enqueue(machine, replace(KEYED, **promised))
    delivery = take(machine)
    enqueue(machine, replace(OTHER, unique_while="queued"), policy=RERUN)
    machine.end_many("finish", [delivery], None)
    machine.end_many("finish", [take(machine)], None)
    machine.let_time_pass(20)

    enqueue(machine, KEYED)

    is_over = promised == {"unique_for": 10}
    assert states(machine) == ["completed", "completed", *(["queued"] if is_over else [])]


def test_the_newest_request_of_a_batch_follows_a_running_holder_whole(machine: JobMachine) -> None:
    enqueue(machine, KEYED)
    delivery = take(machine)
    newest = replace(OTHER, queue="right", unique_while="exists", max_attempts=2)

    enqueue(machine, replace(OTHER, unique_while="queued"), newest, policy=RERUN)
    machine.end_many("finish", [delivery], None)

    assert [record.asked.queue for record in machine.model.records.values()] == ["left", "right"]


@pytest.mark.parametrize("scope", ["active", "exists"])
def test_the_successor_of_an_expired_holder_is_the_next_holder(
    machine: JobMachine, scope: str
) -> None:
    enqueue(machine, replace(KEYED, unique_while=scope, expires_in=30))
    delivery = take(machine)
    enqueue(machine, OTHER, policy=RERUN)
    machine.end_many("retry", [delivery], 0)
    machine.let_time_pass(60)

    enqueue(machine, KEYED)

    assert states(machine) == ["dead", "queued"]


@pytest.mark.parametrize("word", ["finish", "retry", "defer", "bury", "hand_back"])
def test_a_stale_word_beside_a_present_one_takes_nothing_from_it(
    machine: JobMachine, word: str
) -> None:
    enqueue(machine, KEYED)
    stale = take(machine)
    machine.end_many("retry", [stale], 0)
    present = take(machine)

    machine.heartbeat([present, stale], 60)
    machine.end_many(word, [present, stale], None)

    assert states(machine) != ["running"]


def test_each_item_is_compared_with_the_stored_publish_key(machine: JobMachine) -> None:
    known = Asked("mail", 1, "left", publish_key="K")
    enqueue(machine, known)

    enqueue(machine, replace(known, payload=2), known)

    assert states(machine) == ["queued"]


def test_a_finish_after_a_hand_back_is_lost_though_the_job_lapsed_before(
    machine: JobMachine,
) -> None:
    enqueue(machine, KEYED)
    take(machine)
    machine.let_time_pass(60)
    machine.rescue()
    delivery = take(machine)
    machine.end_many("hand_back", [delivery], None)

    machine.end_many("finish", [delivery], None)

    assert states(machine) == ["queued"]


def test_publish_keys_of_a_call_are_looked_at_before_its_unique_keys(machine: JobMachine) -> None:
    """The first item buries the job that the second one's publish key still stands for."""
    (first,) = enqueue(machine, replace(KEYED, publish_key="K", publish_for=20, expires_in=30))
    machine.let_time_pass(30)

    (newer,) = enqueue(machine, KEYED, Asked("mail", 1, "left", publish_key="K"))

    assert newer != first
    assert states(machine) == ["dead", "queued"]


def test_a_publish_key_that_comes_twice_in_a_call_is_told_what_the_call_did(
    machine: JobMachine,
) -> None:
    """The first one's unique key buries its holder, which goes on holding it."""
    enqueue(machine, replace(KEYED, unique_while="exists", expires_in=30))
    machine.let_time_pass(30)

    enqueue(machine, replace(KEYED, publish_key="K"), replace(OTHER, publish_key="K"))

    assert states(machine) == ["dead"]
