"""What is counted, in a registry of the test's own."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from onefold import Job, NewJob, Onefold
from onefold.events import (
    Event,
    JobEnded,
    JobsEnqueued,
    JobStarted,
    LeasesExpired,
    Redelivered,
    WebhookAlarm,
    WebhookDuplicate,
    WebhookReceived,
    WebhookRejected,
    WriteFenced,
)
from onefold.telemetry.prometheus import MOST_LABELS, Metrics, instrument
from tests.fixtures.colours import Coloured

SECOND = timedelta(seconds=1)
EMAIL = {"kind": "email", "queue": "default"}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def after(registry: CollectorRegistry, *events: Event) -> CollectorRegistry:
    metrics = Metrics(registry)
    for event in events:
        metrics.count(event)
    return registry


async def test_duplicates_are_counted_beside_new_jobs(
    onefold: Coloured, registry: CollectorRegistry
) -> None:
    instrument(onefold.target, registry)

    await onefold.enqueue("email", unique_key="k")
    await onefold.enqueue("email", unique_key="k")
    await onefold.enqueue_many([NewJob("email"), NewJob("email", unique_key="k")])

    assert registry.get_sample_value("onefold_jobs_enqueued_total", EMAIL) == 2
    assert registry.get_sample_value("onefold_duplicates_suppressed_total", EMAIL) == 2


def labelled(outcome: str) -> dict[str, str]:
    return {"provider": "stripe", "endpoint": "payments", "outcome": outcome}


COUNTED: list[tuple[Callable[[Job], list[Event]], str, dict[str, str], float]] = [
    (
        # A tenant is no label.
        lambda job: [
            JobsEnqueued("email", "{acme}default", 2, "acme"),
            JobsEnqueued("email", "default", 1, "acme"),
            JobsEnqueued("email", "default", 1, ""),
        ],
        "onefold_jobs_enqueued_total", EMAIL, 4,
    ),
    (lambda job: [JobStarted(job, "w", 3 * SECOND)], "onefold_job_wait_seconds_sum", EMAIL, 3),
    (
        lambda job: [JobEnded(job, "completed", 2 * SECOND), JobEnded(job, "handed back", SECOND)],
        "onefold_job_duration_seconds_sum", EMAIL, 2,
    ),
    (
        lambda job: [JobEnded(job, "dead", SECOND), JobEnded(job, "lost", SECOND)],
        "onefold_jobs_total", {**EMAIL, "outcome": "dead"}, 1,
    ),
    (lambda job: [Redelivered(job)] * 2, "onefold_redeliveries_total", EMAIL, 2),
    (
        lambda job: [WriteFenced(job.id, job.kind, job.fence)],
        "onefold_fenced_writes_total", {}, 1,
    ),
    (
        lambda job: [LeasesExpired(3, buried=1), LeasesExpired(2)],
        "onefold_lease_expiries_total", {}, 5,
    ),
    (
        lambda job: [WebhookReceived("stripe", "payments", "processed")],
        "onefold_webhooks_total", labelled("processed"), 1,
    ),
    (
        lambda job: [WebhookDuplicate("stripe", "payments")],
        "onefold_webhooks_total", labelled("duplicate"), 1,
    ),
    (
        lambda job: [WebhookRejected("stripe", "payments", "too_old")],
        "onefold_webhooks_total", labelled("rejected: too_old"), 1,
    ),
    (
        lambda job: [WebhookAlarm("stripe", "payments", "id reused", "evt_1")],
        "onefold_webhooks_total", labelled("alarm: id reused"), 1,
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", COUNTED, ids=lambda case: case[1])
def test_what_happens_is_counted(job: Job, registry: CollectorRegistry, case: Any) -> None:
    events, name, labels, value = case

    after(registry, *events(job))

    assert registry.get_sample_value(name, labels) == value


def test_kinds_beyond_the_most_share_one_series(registry: CollectorRegistry) -> None:
    events = [JobsEnqueued(f"kind-{number}", "default", 1) for number in range(MOST_LABELS + 5)]

    after(registry, *events, *events)

    other = {"kind": "other", "queue": "other"}
    assert registry.get_sample_value("onefold_jobs_enqueued_total", other) == 10
    assert generate_latest(registry).count(b"onefold_jobs_enqueued_total{") == MOST_LABELS + 1


def test_several_onefolds_share_a_registry_and_each_counts_once_until_it_is_ended(
    sqlite_url: str, registry: CollectorRegistry
) -> None:
    with Onefold(sqlite_url) as one, Onefold(sqlite_url) as other:
        instrument(one, registry)
        instrument(one, registry)
        end = instrument(other, registry)

        one.enqueue("email")
        other.enqueue("email")
        end()
        other.enqueue("email")

    assert registry.get_sample_value("onefold_jobs_enqueued_total", EMAIL) == 2
