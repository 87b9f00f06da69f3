"""Backoff: how long a failed job waits."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.errors import InvalidInput
from onefold.model.retry import Backoff, Exponential, Fixed
from onefold.model.wire import BadBody, decode, decoder, encode

SECOND = timedelta(seconds=1)
LONGEST = timedelta(days=365 * 200)

durations = st.timedeltas(timedelta(microseconds=1), LONGEST)
backoffs: st.SearchStrategy[Backoff] = st.builds(
    Fixed, st.timedeltas(timedelta(0), LONGEST)
) | st.tuples(durations, durations).map(sorted).flatmap(
    lambda pair: st.builds(
        Exponential,
        base=st.just(pair[0]),
        factor=st.floats(1, 1e308) | st.integers(1, 100),
        cap=st.just(pair[1]),
        jitter=st.sampled_from(["full", "none"]),
    )
)


def test_an_exponential_backoff_grows_by_its_factor_up_to_its_cap() -> None:
    backoff = Exponential(timedelta(seconds=2), 3, timedelta(minutes=1), "none")

    waits = [backoff.wait(attempt).total_seconds() for attempt in range(1, 7)]
    assert waits == [2, 6, 18, 54, 60, 60]


def test_full_jitter_waits_a_random_part() -> None:
    backoff = Exponential(base=timedelta(seconds=10))

    assert backoff.wait(2, lambda: 0.0) == timedelta(0)
    assert backoff.wait(2, lambda: 0.25) == timedelta(seconds=5)
    assert backoff.wait(2) <= timedelta(seconds=20)
    assert len({backoff.wait(2) for _ in range(50)}) > 1


@given(backoffs, st.integers(1, 10**12), st.floats(0, 1, exclude_max=True))
def test_a_delay_is_never_negative_longer_than_the_cap_or_too_much_and_never_shrinks(
    backoff: Backoff, attempt: int, dice: float
) -> None:
    delay = backoff.wait(attempt, lambda: dice)

    assert isinstance(backoff, Exponential | Fixed)
    longest = backoff.cap if isinstance(backoff, Exponential) else backoff.delay
    assert timedelta(0) <= delay <= longest
    assert delay <= backoff.wait(attempt + 1, lambda: dice)


@pytest.mark.parametrize("backoff", [Exponential(), Fixed(SECOND)])
def test_attempts_are_counted_from_one(backoff: Backoff) -> None:
    for attempt in (0, -1):
        with pytest.raises(InvalidInput, match=f"attempt is counted from 1, got {attempt}"):
            backoff.wait(attempt)
    with pytest.raises(NotImplementedError):
        Backoff().wait(1)  # each class defines its own


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("base", {"base": timedelta(0)}),
        ("base", {"base": timedelta(seconds=-1)}),
        ("base", {"base": 1}),
        ("base", {"base": timedelta.max, "cap": timedelta.max}),
        ("cap", {"cap": 3600}),
        ("cap", {"cap": timedelta.max}),
        ("cap", {"base": timedelta(hours=2)}),
        ("factor", {"factor": 0.5}),
        ("factor", {"factor": float("nan")}),
        ("factor", {"factor": float("inf")}),
        ("factor", {"factor": 10**400}),
        ("factor", {"factor": "2"}),
        ("factor", {"factor": True}),
        ("jitter", {"jitter": "some"}),
        ("jitter", {"jitter": None}),
    ],
)
def test_an_exponential_backoff_that_makes_no_sense_is_refused_by_its_field(
    field: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        Exponential(**options)

    assert refused.value.field == field


@given(backoffs)
def test_a_backoff_comes_back_from_its_json(backoff: Backoff) -> None:
    assert decoder(Backoff).decode(encode(backoff)) == backoff


def test_the_json_has_a_type_and_seconds() -> None:
    shown = {"type": "exponential", "base": 1, "factor": 2.0, "cap": 3600, "jitter": "full"}
    assert msgspec.json.decode(encode(Exponential())) == shown
    assert msgspec.json.decode(encode(Fixed(SECOND))) == {"type": "fixed", "base": 1}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"type": "none"}', "type"),
        (b'{"type": "fixed"}', "base"),
        (b'{"type": "fixed", "base": "x"}', "base"),
        (b'{"type": "fixed", "base": null}', "base"),
        (b'{"type": "fixed", "base": 1e30}', "base"),
        (b'{"type": "fixed", "base": 1, "factor": 2}', "factor"),
        (b'{"base": 2, "cap": 1}', "cap"),
        (b"7", "$"),
    ],
)
def test_json_that_is_not_a_backoff_is_rejected_by_its_member(body: bytes, field: str) -> None:
    with pytest.raises(BadBody) as rejected:
        decode(body, Backoff)
    assert rejected.value.field == field
