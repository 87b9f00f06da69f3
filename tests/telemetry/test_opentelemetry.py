"""Spans, by the real SDK, and the way of a trace from an enqueue through the database to a run."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from onefold import (
    AlreadyEnqueued,
    Bury,
    Busy,
    Cancel,
    Defer,
    InvalidInput,
    Job,
    KeyReused,
    LeaseLost,
    NewJob,
    Onefold,
    OutcomeUnknown,
    Retry,
    UsageError,
)
from onefold.app.jobs import enqueue_kind
from onefold.telemetry.opentelemetry import instrument
from tests.fixtures.colours import Coloured
from tests.telemetry.conftest import take_one

SECOND = timedelta(seconds=1)


class Traces:
    """A provider, and what it has exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("tests")

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    @property
    def last(self) -> ReadableSpan:
        return self.spans[-1]


@pytest.fixture
def traces() -> Traces:
    return Traces()


def attributes_of(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


def context_of(span: ReadableSpan) -> trace.SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def run(onefold: Onefold, job: Job, error: BaseException | None = None) -> None:
    """As a worker runs a handler that ends in this way."""
    with onefold.context.hooks.running(job):
        if error is not None:
            raise error


async def test_an_enqueue_is_a_producers_span(onefold: Coloured, traces: Traces) -> None:
    instrument(onefold.target, traces.provider)

    enqueued = await onefold.enqueue("email", queue="mail")

    (span,) = traces.spans
    assert (span.name, span.kind) == ("enqueue email", SpanKind.PRODUCER)
    assert dict(attributes_of(span)) == {
        "messaging.system": "onefold",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": enqueued.id,
        "onefold.kind": "email",
        "onefold.duplicate": False,
    }


async def test_an_enqueue_that_fails_is_a_span_that_failed_unless_it_was_refused_as_asked(
    onefold: Coloured, traces: Traces
) -> None:
    holder = await onefold.enqueue("email", {"to": 1}, unique_key="k")
    instrument(onefold.target, traces.provider)

    with pytest.raises(AlreadyEnqueued):
        await onefold.enqueue("email", {"to": 1}, unique_key="k", on_duplicate="raise")
    with pytest.raises(KeyReused):
        await onefold.enqueue("email", {"to": 2}, unique_key="k", on_mismatch="raise")

    refused, failed = traces.spans
    assert attributes_of(refused)["onefold.duplicate"] is True
    assert attributes_of(refused)["messaging.message.id"] == holder.id
    assert refused.status.status_code is StatusCode.UNSET
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes_of(failed)["error.type"] == "onefold.errors.KeyReused"
    assert [event.name for event in failed.events] == ["exception"]


def test_an_enqueue_that_is_cancelled_ends_its_span(sqlite_url: str, traces: Traces) -> None:
    """As `run_async` leaves a procedure whose task is cancelled."""
    with Onefold(sqlite_url) as onefold:
        instrument(onefold, traces.provider)
        procedure = enqueue_kind(onefold.context, "email", {}, {})
        next(procedure)

        procedure.close()

    assert traces.last.status.status_code is StatusCode.UNSET
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_a_batch_is_one_span_and_a_tenant_is_named(onefold: Coloured, traces: Traces) -> None:
    instrument(onefold.target, traces.provider)

    await onefold.enqueue_many([NewJob("email", unique_key="k"), NewJob("email", unique_key="k")])
    await onefold.enqueue_many([NewJob("email"), NewJob("digest", queue="slow")])

    same, mixed = traces.spans
    assert (same.name, mixed.name) == ("enqueue email", "enqueue")
    assert attributes_of(same)["messaging.batch.message_count"] == 2
    assert attributes_of(same)["onefold.duplicates"] == 1
    assert "messaging.destination.name" not in attributes_of(mixed)

    await onefold.tenant("acme").enqueue("email")
    assert attributes_of(traces.last)["onefold.tenant"] == "acme"


async def test_a_run_is_a_child_of_its_enqueue_and_that_of_what_surrounds_it(
    onefold: Coloured, traces: Traces
) -> None:
    instrument(onefold.target, traces.provider)
    with traces.tracer.start_as_current_span("request") as request:
        await onefold.enqueue("email")
        assert trace.get_current_span() is request
    (job,) = await onefold.deliveries.take(worker="worker-1", lease=SECOND)

    with onefold.target.context.hooks.running(job):
        inside = trace.get_current_span().get_span_context()

    enqueue, outer, ran = traces.spans
    assert enqueue.parent == context_of(outer)
    assert (ran.name, ran.kind) == ("run email", SpanKind.CONSUMER)
    assert ran.parent is not None
    assert ran.parent.span_id == context_of(enqueue).span_id
    assert context_of(ran).trace_id == context_of(enqueue).trace_id
    assert inside == context_of(ran)
    assert dict(attributes_of(ran)) == {
        "messaging.system": "onefold",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": job.id,
        "messaging.client.id": "worker-1",
        "onefold.kind": "email",
        "onefold.attempt": 1,
        "onefold.fence": 1,
        "onefold.outcome": "completed",
    }


def test_a_run_can_be_a_trace_of_its_own_with_a_link(sqlite_url: str, traces: Traces) -> None:
    with Onefold(sqlite_url) as onefold:
        instrument(onefold, traces.provider, relation="link")
        onefold.enqueue("email")
        run(onefold, take_one(onefold))

    enqueue, ran = traces.spans
    assert ran.parent is None
    assert context_of(ran).trace_id != context_of(enqueue).trace_id
    assert [link.context.span_id for link in ran.links] == [context_of(enqueue).span_id]


@pytest.mark.parametrize("relation", ["child", "link"])
def test_a_job_without_a_trace_begins_one(sqlite_url: str, traces: Traces, relation: Any) -> None:
    with Onefold(sqlite_url) as onefold:
        onefold.enqueue("email")
        instrument(onefold, traces.provider, relation=relation)
        with traces.tracer.start_as_current_span("the worker's own"):
            run(onefold, take_one(onefold))

    ran, _ = traces.spans
    assert ran.parent is None
    assert not ran.links


def test_baggage_travels_along(sqlite_url: str, traces: Traces) -> None:
    with Onefold(sqlite_url) as onefold:
        instrument(onefold, traces.provider)
        token = context.attach(baggage.set_baggage("customer", "acme"))
        onefold.enqueue("email")
        context.detach(token)

        with onefold.context.hooks.running(take_one(onefold)):
            found = baggage.get_baggage("customer")

    assert found == "acme"
    assert baggage.get_baggage("customer") is None


def test_the_context_of_a_run_ends_with_it_in_threads_and_tasks(
    sqlite_url: str, traces: Traces
) -> None:
    seen: list[trace.SpanContext] = []

    def handler(onefold: Onefold, job: Job) -> None:
        with onefold.context.hooks.running(job):
            seen.append(trace.get_current_span().get_span_context())
        assert trace.get_current_span() is trace.INVALID_SPAN

    async def ahandler(onefold: Onefold, job: Job, beside: asyncio.Barrier) -> None:
        with onefold.context.hooks.running(job):
            await beside.wait()
            seen.append(trace.get_current_span().get_span_context())

    async def both(onefold: Onefold, jobs: list[Job]) -> None:
        beside = asyncio.Barrier(2)
        await asyncio.gather(*(ahandler(onefold, job, beside) for job in jobs))

    with Onefold(sqlite_url) as onefold:
        instrument(onefold, traces.provider)
        onefold.enqueue_many([NewJob("email")] * 3)
        thread = threading.Thread(target=handler, args=(onefold, take_one(onefold)))
        thread.start()
        thread.join()
        asyncio.run(both(onefold, [take_one(onefold), take_one(onefold)]))

    ran = [context_of(span) for span in traces.spans if span.name == "run email"]
    assert len(ran) == 3
    assert {found.span_id for found in ran} == {found.span_id for found in seen}


def _from(outcome: Exception, cause: Exception) -> Exception:
    outcome.__cause__ = cause
    return outcome


FAILED, WELL = StatusCode.ERROR, StatusCode.UNSET
ENDS: dict[str, tuple[BaseException, str, StatusCode, str | None]] = {
    "error": (ValueError("no"), "failed", FAILED, "ValueError"),
    "retry": (Retry(SECOND), "retried", FAILED, None),
    "bury": (Bury("gone"), "dead", FAILED, None),
    "buried for an error": (
        _from(Bury("gone"), ValueError("no")), "dead", FAILED, "ValueError",
    ),
    "unknown": (OutcomeUnknown(key="k"), "dead", FAILED, "onefold.errors.OutcomeUnknown"),
    "unknown so far": (
        OutcomeUnknown(key="k", verifiable=True), "failed", FAILED, "onefold.errors.OutcomeUnknown",
    ),
    "lost": (LeaseLost("job 1", fence=1), "lost", FAILED, "onefold.errors.LeaseLost"),
    "defer": (Defer(SECOND), "deferred", WELL, None),
    "busy": (Busy(key="k", retry_after=SECOND), "deferred", WELL, None),
    "cancel": (Cancel("not wanted"), "cancelled", WELL, None),
    "interrupted": (asyncio.CancelledError(), "interrupted", WELL, None),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_a_span_says_how_its_run_ended(sqlite_url: str, traces: Traces, end: str) -> None:
    error, outcome, status, error_type = ENDS[end]
    with Onefold(sqlite_url) as onefold:
        onefold.enqueue("email")
        instrument(onefold, traces.provider)

        with suppress(type(error)):
            run(onefold, take_one(onefold), error)

    (span,) = traces.spans
    assert attributes_of(span)["onefold.outcome"] == outcome
    assert span.status.status_code is status
    assert attributes_of(span).get("error.type") == error_type
    assert len(span.events) == (error_type is not None)


def test_it_can_be_ended_and_begun_again_and_without_a_provider_nothing_is_carried(
    sqlite_url: str, traces: Traces
) -> None:
    unknown: Any = "sibling"
    with Onefold(sqlite_url) as onefold:
        with pytest.raises(InvalidInput) as caught:
            instrument(onefold, relation=unknown)
        assert caught.value.field == "relation"
        end = instrument(onefold, traces.provider)
        with pytest.raises(UsageError, match="Instrument it once"):
            instrument(onefold, traces.provider)

        end()
        onefold.enqueue("email")
        run(onefold, take_one(onefold))
        end = instrument(onefold)
        onefold.enqueue("email")
        job = take_one(onefold)
        run(onefold, job)
        end()
        instrument(onefold, traces.provider)

    assert job.trace is None
    assert traces.spans == ()
