"""Which state follows which: the table of the design, written out once more."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.model.lifecycle import (
    Event,
    Standing,
    State,
    allows,
    mermaid,
    next_step,
)
from onefold.model.retry import Fixed

NOW = 1_000_000_000
BACKOFF = Fixed(timedelta(seconds=30))


def standing(state: State, **fields: int) -> Standing:
    values = {"attempt": 2, "max_attempts": 8, **fields}
    return Standing(state, backoff=BACKOFF, **values)


def test_a_take_charges_an_attempt_and_one_that_was_never_charged_is_not_given_back() -> None:
    """A replacement sets the attempt of a running delivery's row to 0 only while it is queued."""
    step = next_step(standing(State.QUEUED), Event.TAKE, now=NOW)

    assert (step.state, step.attempt) == (State.RUNNING, 3)
    for event in (Event.DEFER, Event.HAND_BACK):
        assert next_step(standing(State.RUNNING, attempt=0), event, now=NOW).attempt == 0


def test_poison_goes_before_the_last_attempt_as_a_reason() -> None:
    job = standing(State.RUNNING, attempt=5, max_attempts=5, vanished=4)

    assert next_step(job, Event.LAPSE, now=NOW).reason == "poison"


@pytest.mark.parametrize(
    ("state", "event", "reason"),
    [
        (State.RUNNING, Event.FINISH, None),
        (State.RUNNING, Event.BURY, "bury"),
        (State.RUNNING, Event.CANCEL, "cancel"),
        (State.QUEUED, Event.CANCEL, "cancel"),
        (State.QUEUED, Event.EXPIRE, "expired"),
    ],
)
def test_an_end_has_a_reason(state: State, event: Event, reason: str | None) -> None:
    assert next_step(standing(state), event, now=NOW).reason == reason
    assert next_step(standing(state), event, now=NOW, reason="mine").reason == "mine"


events = st.sampled_from([event for event in Event if allows(State.RUNNING, event)])


@given(
    events,
    st.integers(1, 100),
    st.integers(1, 100),
    st.integers(0, 4),
    st.none() | st.integers(0, 10**12),
)
def test_every_step_of_a_delivery_keeps_the_rules(
    event: Event, attempt: int, max_attempts: int, vanished: int, after: int | None
) -> None:
    job = standing(State.RUNNING, attempt=attempt, max_attempts=max_attempts, vanished=vanished)

    step = next_step(job, event, now=NOW, after=after)

    assert 0 <= step.attempt <= attempt
    assert step.state is not State.RUNNING
    if step.state is State.QUEUED:
        assert step.run_at is not None
        assert step.run_at >= NOW
        assert step.reason is None
    else:
        assert step.run_at is None
    if event in {Event.FAIL, Event.LAPSE}:
        assert (step.state is State.DEAD) == (attempt >= max_attempts or step.vanished == 5)


def test_the_diagram_begins_with_an_enqueue_and_has_the_whole_table() -> None:
    """Line by line, tests/docs compares it with the page that shows it."""
    first, enqueued, *others = mermaid().splitlines()

    assert (first, enqueued) == ("stateDiagram-v2", "    [*] --> queued: enqueue")
    assert "    running --> dead: lease expired, none left" in others
    assert "    completed --> queued: replay, fresh, attempt 0" in others
