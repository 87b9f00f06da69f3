"""What is counted, in a registry of the test's own."""

from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from onefold import Job, NewJob, Onefold
from onefold.events import (
    Event,
    JobEnded,
    JobOutcome,
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


def test_a_tenant_is_no_label(registry: CollectorRegistry) -> None:
    after(
        registry,
        JobsEnqueued("email", "{acme}default", 2, "acme"),
        JobsEnqueued("email", "default", 1, ""),
    )

    assert registry.get_sample_value("onefold_jobs_enqueued_total", EMAIL) == 3


@pytest.mark.parametrize(
    "outcome",
    ["completed", "retried", "deferred", "dead", "cancelled", "handed back", "lost"],
)
def test_deliveries_are_counted_by_how_they_ended(
    job: Job, registry: CollectorRegistry, outcome: JobOutcome
) -> None:
    after(registry, JobEnded(job, outcome, timedelta(seconds=2)))

    labels = {**EMAIL, "outcome": outcome}
    assert registry.get_sample_value("onefold_jobs_total", labels) == 1


def test_what_handlers_take_is_measured(job: Job, registry: CollectorRegistry) -> None:
    after(registry, JobEnded(job, "completed", timedelta(seconds=2)))

    assert registry.get_sample_value("onefold_job_duration_seconds_sum", EMAIL) == 2
    assert registry.get_sample_value("onefold_job_duration_seconds_count", EMAIL) == 1


def test_a_job_that_was_handed_back_took_no_time(job: Job, registry: CollectorRegistry) -> None:
    after(registry, JobEnded(job, "handed back", timedelta()))

    assert registry.get_sample_value("onefold_job_duration_seconds_count", EMAIL) is None


def test_what_jobs_wait_is_measured(job: Job, registry: CollectorRegistry) -> None:
    after(registry, JobStarted(job, "worker-1", timedelta(seconds=3)))

    assert registry.get_sample_value("onefold_job_wait_seconds_sum", EMAIL) == 3


def test_redeliveries_are_counted(job: Job, registry: CollectorRegistry) -> None:
    after(registry, Redelivered(job), Redelivered(job))

    assert registry.get_sample_value("onefold_redeliveries_total", EMAIL) == 2


def test_fenced_writes_are_counted(job: Job, registry: CollectorRegistry) -> None:
    after(registry, WriteFenced(job.id, job.kind, job.fence))

    assert registry.get_sample_value("onefold_fenced_writes_total") == 1


def test_lease_expiries_are_counted(registry: CollectorRegistry) -> None:
    after(registry, LeasesExpired(3, buried=1), LeasesExpired(2))

    assert registry.get_sample_value("onefold_lease_expiries_total") == 5


def test_webhooks_are_counted_by_what_became_of_them(registry: CollectorRegistry) -> None:
    after(
        registry,
        WebhookReceived("stripe", "payments", "processed"),
        WebhookDuplicate("stripe", "payments"),
        WebhookRejected("stripe", "payments", "too_old"),
        WebhookRejected("stripe", "payments", "too_new"),
        WebhookAlarm("stripe", "payments", "id reused", "evt_1"),
    )

    for outcome in (
        "processed", "duplicate", "rejected: too_old", "rejected: too_new", "alarm: id reused",
    ):  # fmt: skip
        labels = {"provider": "stripe", "endpoint": "payments", "outcome": outcome}
        assert registry.get_sample_value("onefold_webhooks_total", labels) == 1


def test_what_never_happened_is_zero_and_not_absent(registry: CollectorRegistry) -> None:
    after(registry)

    assert registry.get_sample_value("onefold_fenced_writes_total") == 0
    assert registry.get_sample_value("onefold_lease_expiries_total") == 0


def test_kinds_beyond_the_most_share_one_series(registry: CollectorRegistry) -> None:
    events = [JobsEnqueued(f"kind-{number}", "default", 1) for number in range(MOST_LABELS + 5)]

    after(registry, *events, *events)

    other = {"kind": "other", "queue": "other"}
    assert registry.get_sample_value("onefold_jobs_enqueued_total", other) == 10
    assert generate_latest(registry).count(b"onefold_jobs_enqueued_total{") == MOST_LABELS + 1


def test_tenants_are_no_label(registry: CollectorRegistry) -> None:
    after(
        registry, JobsEnqueued("email", "default", 1, "acme"), JobsEnqueued("email", "default", 1)
    )

    assert registry.get_sample_value("onefold_jobs_enqueued_total", EMAIL) == 2


def test_several_onefolds_share_a_registry(sqlite_url: str, registry: CollectorRegistry) -> None:
    with Onefold(sqlite_url) as one, Onefold(sqlite_url) as other:
        instrument(one, registry)
        instrument(other, registry)

        one.enqueue("email")
        other.enqueue("email")

    assert registry.get_sample_value("onefold_jobs_enqueued_total", EMAIL) == 2


def test_instrumented_twice_it_counts_once(sqlite_url: str, registry: CollectorRegistry) -> None:
    with Onefold(sqlite_url) as onefold:
        instrument(onefold, registry)
        instrument(onefold, registry)

        onefold.enqueue("email")

    assert registry.get_sample_value("onefold_jobs_enqueued_total", EMAIL) == 1


def test_it_can_be_ended(sqlite_url: str, registry: CollectorRegistry) -> None:
    with Onefold(sqlite_url) as onefold:
        end = instrument(onefold, registry)
        onefold.enqueue("email")

        end()
        onefold.enqueue("email")

    assert registry.get_sample_value("onefold_jobs_enqueued_total", EMAIL) == 1
