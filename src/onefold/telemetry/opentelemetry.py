"""OpenTelemetry: `instrument(onefold)` creates spans for enqueues and runs.

An enqueue is a producer span, the run of a handler a consumer span, with the attributes of the
semantic conventions for messaging. The propagator of the process (by default W3C: traceparent,
tracestate and baggage) writes the trace context, which is stored with the job.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from onefold.errors import Needs

with Needs("onefold[opentelemetry]"):
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.trace import Link, SpanKind, StatusCode


from onefold.errors import (
    AlreadyEnqueued,
    Busy,
    InvalidInput,
    LeaseLost,
    OutcomeUnknown,
    UsageError,
)
from onefold.model.failure import type_name
from onefold.model.outcome import Bury, Cancel, Defer, Outcome, Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from opentelemetry.trace import Span, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from onefold.app.onefold import Onefold
    from onefold.hooks import Enqueueing
    from onefold.model.job import Job

Relation: TypeAlias = Literal["child", "link"]

# The first match counts.
OUTCOMES: Final = (
    (Retry, "retried"),
    ((Defer, Busy), "deferred"),
    ((Bury, OutcomeUnknown), "dead"),
    (Cancel, "cancelled"),
    (LeaseLost, "lost"),
    (Exception, "failed"),
)
FAILURES: Final = frozenset({"retried", "dead", "lost", "failed"})


def instrument(
    onefold: Onefold,
    tracer_provider: TracerProvider | None = None,
    *,
    relation: Relation = "child",
) -> Callable[[], None]:
    """Create spans for enqueues and runs; returns a function that ends this.

    A run is a child of its enqueue, in one trace. With `relation="link"` it starts its own trace
    with a link to the enqueue: for jobs that run days later, or in great numbers.
    """
    if relation not in ("child", "link"):
        raise InvalidInput("relation", f"must be child or link, got {relation!r}")
    hooks = onefold.context.hooks
    if hooks.carrier is not None:
        raise UsageError(f"{onefold!r} is instrumented already. Instrument it once.")
    spans = _Spans(
        trace.get_tracer("onefold", version("onefold"), tracer_provider), link=relation == "link"
    )
    hooks.carrier = _current_context
    hooks.around_enqueue.append(spans.enqueue)
    hooks.around.append(spans.run)

    def end() -> None:
        hooks.carrier = None
        hooks.around_enqueue.remove(spans.enqueue)
        hooks.around.remove(spans.run)

    return end


def _current_context() -> dict[str, str]:
    carried: dict[str, str] = {}
    propagate.inject(carried)
    return carried


class _Spans:
    """The spans of one Onefold."""

    def __init__(self, tracer: Tracer, *, link: bool) -> None:
        self._tracer = tracer
        self._link = link

    @contextmanager
    def enqueue(self, under_way: Enqueueing) -> Generator[None, None, None]:
        """The producer's span, current while the jobs are stored."""
        requests = [item.request for item in under_way.items]
        kind = _common([request.kind for request in requests])
        queue = _common([request.queue for request in requests])
        attributes = _attributes("enqueue", "send", kind, queue, requests[0].tenant)
        if len(requests) > 1:
            attributes["messaging.batch.message_count"] = len(requests)
        with self._tracer.start_as_current_span(
            "enqueue" if kind is None else f"enqueue {kind}",
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except AlreadyEnqueued as refusal:
                # Not a failure: the caller chose this for duplicates.
                _name_holder(span, refusal.holder_id, duplicate=True)
                raise
            except Exception as error:
                _fail(span, error)
                raise
            _set_ids(span, under_way)

    @contextmanager
    def run(self, job: Job) -> Generator[None, None, None]:
        """The consumer's span, current while the handler runs."""
        # An empty context: the run continues the trace of its enqueue, not that of the worker.
        context = propagate.extract(job.trace or {}, Context())
        links: list[Link] = []
        if self._link:
            origin = trace.get_current_span(context).get_span_context()
            links += [Link(origin)] if origin.is_valid else []
            context = trace.set_span_in_context(trace.INVALID_SPAN, context)
        attributes = _attributes("run", "process", job.kind, job.queue, job.tenant)
        attributes["messaging.message.id"] = job.id
        attributes["onefold.attempt"] = job.attempt
        attributes["onefold.fence"] = job.fence
        if job.worker is not None:
            attributes["messaging.client.id"] = job.worker
        span = self._tracer.start_span(
            f"run {job.kind}", context, SpanKind.CONSUMER, attributes, links
        )
        token = attach(trace.set_span_in_context(span, context))
        try:
            yield
        except BaseException as error:
            _set_outcome(span, error)
            raise
        else:
            span.set_attribute("onefold.outcome", "completed")
        finally:
            detach(token)
            span.end()


def _attributes(
    name: str, operation: str, kind: str | None, queue: str | None, tenant: str
) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "messaging.system": "onefold",
        "messaging.operation.name": name,
        "messaging.operation.type": operation,
    }
    if kind is not None:
        attributes["onefold.kind"] = kind
    if queue is not None:
        attributes["messaging.destination.name"] = queue
    if tenant:
        attributes["onefold.tenant"] = tenant
    return attributes


def _common(names: Sequence[str]) -> str | None:
    """The name that all have in common; None if they differ."""
    return names[0] if len(set(names)) == 1 else None


def _set_ids(span: Span, under_way: Enqueueing) -> None:
    """Set the id of one job, or the number of duplicates among many."""
    answers = under_way.answers
    if len(answers) == 1:
        _name_holder(span, answers[0].id, duplicate=answers[0].duplicate)
        return
    span.set_attribute("onefold.duplicates", sum(answer.duplicate for answer in answers))


def _name_holder(span: Span, job_id: str, *, duplicate: bool) -> None:
    span.set_attribute("messaging.message.id", job_id)
    span.set_attribute("onefold.duplicate", duplicate)


def _set_outcome(span: Span, error: BaseException) -> None:
    """Set the outcome by the handler's exception. Whether the job is dead is not known here."""
    outcome = _outcome_of(error)
    span.set_attribute("onefold.outcome", outcome)
    if outcome in FAILURES:
        _fail(span, error)


def _outcome_of(error: BaseException) -> str:
    if isinstance(error, OutcomeUnknown) and error.verifiable:
        return "failed"
    found = (outcome for kinds, outcome in OUTCOMES if isinstance(error, kinds))
    return next(found, "interrupted")


def _fail(span: Span, error: BaseException) -> None:
    # The error is what an outcome was raised from.
    cause = error.__cause__ if isinstance(error, Outcome) else error
    if cause is not None:
        span.set_attribute("error.type", type_name(cause))
        span.record_exception(cause)
    span.set_status(StatusCode.ERROR, str(error))
