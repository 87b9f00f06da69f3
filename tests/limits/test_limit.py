"""`Limit` and `Rate`: what may be said, and how a bucket of tokens is counted."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold import InvalidInput, Limit, Rate
from onefold.model.queue import QueueLimits

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("written", "count", "period"),
    [
        ("100/m", 100, MINUTE),
        ("1/s", 1, timedelta(seconds=1)),
        ("10/30s", 10, timedelta(seconds=30)),
        ("5/2h", 5, timedelta(hours=2)),
        ("3/d", 3, timedelta(days=1)),
        ((7, timedelta(milliseconds=500)), 7, timedelta(milliseconds=500)),
        (Rate(2, MINUTE), 2, MINUTE),
    ],
)
def test_a_rate_is_read_as_it_is_written(written: Any, count: int, period: timedelta) -> None:
    assert Limit(rate=written).rate == Rate(count, period)


@pytest.mark.parametrize(
    "written",
    ["", "100", "100/", "/m", "0/m", "100/w", "-1/m", "1/0s", "1.5/m", " 1/m", "1/m ", "1/M",
     "10000000/m", "2000000/s", "1/999999999999999d", "٣/m", 5, (1, 60), (0, MINUTE),
     (1, timedelta(0)), (True, MINUTE), (1, timedelta(seconds=-1)), (1, MINUTE, 1)],
)  # fmt: skip
def test_what_is_no_rate_is_refused(written: Any) -> None:
    with pytest.raises(InvalidInput, match="rate"):
        Limit(rate=written)


def test_what_is_no_concurrency_and_no_key_and_nothing_at_all_is_refused() -> None:
    concurrencies: list[Any] = [0, -1, 1.0, True, "5", 1_000_001]
    keys: list[Any] = ["", "a..b", "a[", 5]
    for concurrency in concurrencies:
        with pytest.raises(InvalidInput, match="concurrency"):
            Limit(concurrency=concurrency)
    for key in keys:
        with pytest.raises(InvalidInput, match="key"):
            Limit(key=key, concurrency=1)
    with pytest.raises(InvalidInput, match="needs a concurrency, a rate or a key"):
        Limit()


@pytest.mark.parametrize(
    "written",
    ["Limit(concurrency=5)", "Limit(rate='100/m')", "Limit(rate='10/30s')", "Limit(rate='5/2h')",
     "Limit(key='tenant.id', concurrency=2, rate='1/d')"],
)  # fmt: skip
def test_a_limit_is_shown_as_it_would_be_written(written: str) -> None:
    assert repr(eval(written, {"Limit": Limit})) == written


@pytest.mark.parametrize(
    ("payload", "group"),
    [
        ({"tenant": {"id": "acme"}}, "acme"),
        ({"tenant": {"id": 7}}, "7"),
        ({"tenant": {"id": UUID(int=1)}}, str(UUID(int=1))),
        ({"tenant": {"id": [1, 2]}}, "[1,2,]"),
        ({"tenant": {"id": None}}, None),
        ({"tenant": {"id": ""}}, None),
        ({"tenant": {}}, None),
        ([1], None),
        (None, None),
    ],
)
def test_a_key_picks_the_group_from_the_payload(payload: Any, group: str | None) -> None:
    assert Limit(key="tenant.id", concurrency=1).group_of(payload) == group
    assert Limit(concurrency=1).group_of(payload) is None


# --- buckets --------------------------------------------------------------------------------------


def rate_of(count: int, extra: int) -> Rate:
    return Rate(count, timedelta(microseconds=count + extra))


rates = st.builds(rate_of, st.integers(1, 50), st.integers(0, 1_000))


@given(rate=rates, steps=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60)), max_size=60))
def test_no_period_ever_sees_more_than_a_full_bucket_and_what_trickles_in(
    rate: Rate, steps: list[tuple[int, int]]
) -> None:
    now, full_at = 1_000, 0
    begun: list[int] = []
    for pause, wanted in steps:
        now += pause
        taken = min(wanted, rate.left(full_at, now))
        if taken:
            full_at = rate.spent(full_at, now, taken)
        begun += [now] * taken

    for place, start in enumerate(begun):
        for later, moment in enumerate(begun[place:], start=1):
            assert later <= rate.count + (moment - start) // rate.interval


@given(rate=rates, tokens=st.integers(1, 50), now=st.integers(0, 10_000))
def test_the_wait_ends_exactly_when_a_token_is_there(rate: Rate, tokens: int, now: int) -> None:
    full_at = rate.spent(0, now, min(tokens, rate.count))
    wait = rate.wait(full_at, now)

    assert rate.left(full_at, now + wait) >= 1
    assert wait == 0 or rate.left(full_at, now + wait - 1) == 0


# --- what is stored -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "controlled"),
    [
        (QueueLimits(), False),
        (QueueLimits(ordered=True), True),
        (QueueLimits(limit=Limit(concurrency=1)), True),
        (QueueLimits(group_limit=Limit(rate="1/s")), True),
        (QueueLimits(group_limit=Limit(key="tenant")), False),
    ],
)
def test_a_queue_is_controlled_if_there_is_anything_to_keep_to(
    limits: QueueLimits, *, controlled: bool
) -> None:
    assert limits.controlled == controlled
