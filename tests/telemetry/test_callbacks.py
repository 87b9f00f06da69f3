"""What listeners are told of deliveries that a worker answers for by a callback."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import Job
from onefold.events import JobEnded
from tests.fixtures.colours import Coloured
from tests.telemetry.conftest import take_one
from tests.telemetry.test_events import told

SOON = timedelta(seconds=1)


async def pushed(onefold: Coloured, **options: Any) -> Job:
    await onefold.enqueue("email", **options)
    return take_one(onefold.target)


@pytest.mark.parametrize(
    ("word", "options", "outcome", "error_type"),
    [
        ("acknowledge", {}, "completed", None),
        ("nack", {}, "retried", "Nack"),
        ("nack", {"retryable": False}, "dead", "Nack"),
        ("defer_job", {"after": SOON}, "deferred", None),
    ],
)
async def test_a_callback_tells_how_the_delivery_has_ended(
    onefold: Coloured, word: str, options: dict[str, Any], outcome: str, error_type: str | None
) -> None:
    job = await pushed(onefold)
    events = told(onefold)

    await getattr(onefold.deliveries, word)(job.id, **options)

    (event,) = events
    assert isinstance(event, JobEnded)
    assert (event.job.id, event.outcome, event.error_type) == (job.id, outcome, error_type)
    assert event.duration >= timedelta(0)


async def test_a_heartbeat_and_a_repeated_callback_tell_nothing(onefold: Coloured) -> None:
    job = await pushed(onefold)
    events = told(onefold)

    await onefold.deliveries.heartbeat_job(job.id)
    assert events == []
    await onefold.deliveries.acknowledge(job.id)
    await onefold.deliveries.acknowledge(job.id)

    assert len(events) == 1
