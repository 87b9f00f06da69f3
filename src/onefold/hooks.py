"""Hooks: listeners for events, and context managers around an enqueue and around a handler.

A listener is called after the event, on the thread or in the event loop where it happened. A hook
that fails is logged, and the work continues. Without listeners no events are built.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from onefold.errors import InvalidInput
from onefold.model.event import DuplicatesSuppressed, Event, JobsEnqueued, Listener
from onefold.model.job_options import read_options

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from onefold.model.job import Enqueued, Job
    from onefold.model.new_job import Prepared

T = TypeVar("T")
Around: TypeAlias = Callable[[T], AbstractContextManager[Any]]
Carrier: TypeAlias = Callable[[], Mapping[str, str]]

TRACE_LENGTH: Final = 8192
"""The limit of W3C for baggage. A longer text is a payload, not a context."""

log: logging.Logger = logging.getLogger("onefold")
NO_HOOKS: Final = nullcontext()
"""Instead of `running`, if `around` is empty."""


class Hooks:
    """The hooks that an application, or its telemetry, has registered."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        """Without listeners, do not build events."""
        self.carrier: Carrier | None = None
        """Returns the context of the caller's trace; an enqueue stores it with the job."""
        self.around_enqueue: list[Around[Enqueueing]] = []
        """Entered around each enqueue; the carrier is called inside."""
        self.around: list[Around[Job]] = []
        """Entered around each handler; use `running`, which catches their errors."""
        self.in_processes: Callable[[Hooks], None] | None = None
        """Called in each process for isolated handlers, with the hooks of that process. It is
        pickled: use a function of a module, or a `partial` of one.
        """

    def add(self, listener: Listener) -> None:
        """Send every event from now on to `listener`. A second call with it does nothing."""
        if not _is_plain_function(listener):
            raise InvalidInput(
                "listener", f"must be a plain function that takes an event, got {listener!r}"
            )
        if listener not in self.listeners:
            self.listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        """Send no more events to `listener`."""
        if listener in self.listeners:
            self.listeners.remove(listener)

    def tell(self, event: Event) -> None:
        """Send an event to all listeners."""
        for listener in tuple(self.listeners):
            try:
                listener(event)
            except Exception:
                log.exception(
                    "The listener %r failed; the work continues. Event: %r", listener, event
                )

    def tell_enqueued(self, item: Prepared, answer: Enqueued) -> None:
        """Send the event of one enqueue to all listeners."""
        request = item.request
        event = DuplicatesSuppressed if answer.duplicate else JobsEnqueued
        self.tell(event(request.kind, request.queue, 1, request.tenant))

    def running(self, job: Job) -> AbstractContextManager[Any]:
        """Enter the hooks around a handler, in the context it runs in: a task, or a thread.

        Raise inside whatever ends the handler, also the outcomes that it returns. An error that
        `done_on` accepts does not count as an error.
        """
        return _enter_all(self.around, job)

    def enqueueing(self, items: Sequence[Prepared]) -> Enqueueing:
        """Enter the hooks around an enqueue of prepared jobs."""
        return Enqueueing(self, items)

    def carried(self) -> dict[str, str]:
        """The context of the caller's trace; empty if there is none that can be stored."""
        if self.carrier is None:
            return {}
        try:
            trace = dict(self.carrier())
            fits = sum(map(len, [*trace, *trace.values()])) <= TRACE_LENGTH
            if fits and all(text.isprintable() for text in (*trace, *trace.values())):
                return trace
        except Exception:
            log.exception("The carrier %r failed; the job has no trace.", self.carrier)
        else:
            log.warning(
                "The trace's context has control characters, or more than %d: the job goes without"
                " it. Reduce the OpenTelemetry baggage.",
                TRACE_LENGTH,
            )
        return {}


class Enqueueing:
    """An enqueue in progress: the items to store, and the results once they are known."""

    def __init__(self, hooks: Hooks, items: Sequence[Prepared]) -> None:
        """Made by `Hooks.enqueueing`."""
        self.items: Sequence[Prepared] = items
        self.answers: Sequence[Enqueued] = ()
        self._hooks = hooks
        self._entered: ExitStack | None = None

    def __enter__(self) -> Self:
        hooks = self._hooks
        if hooks.around_enqueue:
            self._entered = _enter_all(hooks.around_enqueue, self)
        if hooks.carrier is not None and (trace := hooks.carried()):
            self.items = _with_trace(self.items, trace)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._entered is not None:
            self._entered.__exit__(kind, error, trace)
        if error is None and self._hooks.listeners:
            self._tell()

    def _tell(self) -> None:
        if len(self.items) == 1:
            self._hooks.tell_enqueued(self.items[0], self.answers[0])
            return
        counts: Counter[tuple[type[JobsEnqueued | DuplicatesSuppressed], str, str, str]] = Counter()
        for item, answer in zip(self.items, self.answers, strict=True):
            request = item.request
            event = DuplicatesSuppressed if answer.duplicate else JobsEnqueued
            counts[event, request.kind, request.queue, request.tenant] += 1
        for (event, kind, queue, tenant), count in counts.items():
            self._hooks.tell(event(kind, queue, count, tenant))


def _is_plain_function(value: object) -> bool:
    return callable(value) and not inspect.iscoroutinefunction(value)


def _with_trace(items: Sequence[Prepared], trace: dict[str, str]) -> list[Prepared]:
    """The same items with the trace in their options; an item that has a trace keeps it."""
    written: dict[str | None, str] = {}
    traced: list[Prepared] = []
    for item in items:
        before = item.request.options
        if before not in written:
            options = read_options(before)
            if options.trace is None:
                options = msgspec.structs.replace(options, trace=trace)
            written[before] = msgspec.json.encode(options).decode()
        request = msgspec.structs.replace(item.request, options=written[before])
        traced.append(msgspec.structs.replace(item, request=request))
    return traced


def _enter_all(arounds: Sequence[Around[T]], subject: T) -> ExitStack:
    with ExitStack() as stack:
        for around in tuple(arounds):
            stack.enter_context(_Guarded(around, subject))
        return stack.pop_all()


class _Guarded(AbstractContextManager[None], Generic[T]):
    """A context manager of the application, whose errors are logged."""

    def __init__(self, around: Around[T], subject: T) -> None:
        self._around = around
        self._subject = subject
        self._manager: AbstractContextManager[Any] | None = None

    def __enter__(self) -> None:
        try:
            manager = self._around(self._subject)
            manager.__enter__()
        except Exception:
            log.exception("The hook %r failed to begin; the work continues.", self._around)
        else:
            self._manager = manager

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._manager is None:
            return
        try:
            self._manager.__exit__(kind, error, trace)
        except Exception as failure:
            if failure is not error:
                log.exception("The hook %r failed to end; the work continues.", self._around)
