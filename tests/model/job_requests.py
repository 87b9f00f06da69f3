"""Requests at random, for the model and for the engine alike."""

from datetime import timedelta
from typing import Any, Final

from hypothesis import strategies as st

from onefold import Enqueued, Fixed, NewJob, Retention
from tests.model.job_records import Answer, Asked, Policy
from tests.model.store import moment

QUEUES = ("left", "right")

# Few names, and the common case much more often than the others: requests shall meet.
SCOPES = st.fixed_dictionaries(
    {
        "unique_key": st.sampled_from(["x", "x", "x", "x", "x", "y", None]),
        "unique_while": st.sampled_from([None, None, "queued", "active", "exists"]),
        "unique_for": st.sampled_from([None, None, None, 10, 60]),
        "across_kinds": st.sampled_from([False, False, False, True]),
    }
)
PUBLISH_KEYS = st.fixed_dictionaries(
    {
        "publish_key": st.sampled_from([None, None, None, "K", "L"]),
        "publish_for": st.sampled_from([20, 3600]),
    }
)
REST = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["mail", "mail", "mail", "bill"]),
        "payload": st.integers(0, 2),
        "queue": st.sampled_from(["left", "left", "left", "right"]),
        "priority": st.sampled_from([0, 0, 0, -1, 1]),
        "delay": st.sampled_from([0, 0, 0, 0, 10, 60]),
        "max_attempts": st.sampled_from([8, 8, 1, 2]),
        "backoff": st.sampled_from([0, 0, 10]),
        "expires_in": st.sampled_from([None, None, None, None, None, 30]),
        "retention": st.sampled_from(
            [
                (),
                (),
                (),
                (("completed", 0),),
                (("completed", 20), ("dead", 20), ("cancelled", 20)),
                (("completed", 0), ("dead", 0), ("cancelled", 0)),
            ]
        ),
    }
)

QUEUED: Final = ("scheduled", "ready", "retrying")


def _asked(scope: dict[str, Any], publish: dict[str, Any], rest: dict[str, Any]) -> Asked:
    if scope["unique_key"] is None:
        scope = {}
    elif scope["unique_while"] == "exists":
        # A retention of nothing contradicts it, and is refused.
        rest["retention"] = tuple((outcome, kept or 20) for outcome, kept in rest["retention"])
    return Asked(**scope, **publish, **rest)


REQUESTS = st.builds(_asked, SCOPES, PUBLISH_KEYS, REST)
POLICIES = st.one_of(
    st.just(Policy()),
    st.builds(Policy, st.sampled_from(["keep", "raise"]), st.sampled_from(["flag", "raise"])),
    st.builds(Policy, st.just("rerun")),
    st.builds(Policy, st.just("replace"), max_wait=st.sampled_from([None, 0, 15])),
)
TENANTS = st.sampled_from(["one", "one", "one", "one", "one", "two"])


def new_job(asked: Asked, now: int) -> NewJob:
    return NewJob(
        asked.kind,
        {"n": asked.payload},
        queue=asked.queue,
        priority=asked.priority,
        delay=span(asked.delay),
        max_attempts=asked.max_attempts,
        unique_key=asked.unique_key,
        unique_while=asked.unique_while,  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        unique_for=span(asked.unique_for),
        across_kinds=asked.across_kinds,
        idempotency_key=asked.publish_key,
        idempotency_for=timedelta(seconds=asked.publish_for),
        backoff=Fixed(timedelta(seconds=asked.backoff)),
        retention=Retention(**{word: timedelta(seconds=kept) for word, kept in asked.retention}),
        expires_at=None if asked.expires_in is None else moment(now + asked.expires_in),
    )


def span(seconds: int | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def told(answer: Enqueued) -> Answer:
    state = stored(answer.state)
    return Answer(answer.id, answer.duplicate, state, answer.mismatch, answer.replaced)


def stored(state: str | None) -> str | None:
    """The model has one word for the three states of a job that waits."""
    return "queued" if state in QUEUED else state
