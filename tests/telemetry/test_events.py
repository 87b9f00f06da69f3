"""What listeners are told of enqueues, and what a hook that fails does to the work: nothing."""

import logging
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import psycopg
import pytest

from onefold import AlreadyEnqueued, InvalidInput, Job, NewJob, Onefold
from onefold.events import DuplicatesSuppressed, Event, JobsEnqueued, LeasesExpired
from onefold.hooks import TRACE_LENGTH, Hooks
from tests.fixtures.colours import Coloured, Store

HAPPENED = LeasesExpired(1)


def told(onefold: Coloured) -> list[Event]:
    events: list[Event] = []
    onefold.target.subscribe(events.append)
    return events


async def trace_of(onefold: Coloured, job_id: str) -> Mapping[str, str] | None:
    job: Job = await onefold.get(job_id)
    return job.trace


async def test_an_enqueue_tells_by_kind_and_queue(onefold: Coloured) -> None:
    events = told(onefold)

    await onefold.enqueue_many(
        [
            NewJob("email", unique_key="a"),
            NewJob("email", unique_key="a"),
            NewJob("email", queue="mail"),
            NewJob("email", queue="mail"),
            NewJob("digest"),
        ]
    )

    assert events == [
        JobsEnqueued("email", "default", 1),
        DuplicatesSuppressed("email", "default", 1),
        JobsEnqueued("email", "mail", 2),
        JobsEnqueued("digest", "default", 1),
    ]
    events.clear()
    await onefold.enqueue_many([])
    assert events == []
    await onefold.enqueue("email", unique_key="a")
    await onefold.enqueue("email", queue="mail")
    assert events == [
        DuplicatesSuppressed("email", "default", 1),
        JobsEnqueued("email", "mail", 1),
    ]


async def test_what_a_tenant_does_is_told_with_its_name(onefold: Coloured) -> None:
    events = told(onefold)

    await onefold.tenant("acme").enqueue("email")

    assert events == [JobsEnqueued("email", "default", 1, tenant="acme")]


def test_what_is_stored_in_a_callers_transaction_is_told(store: Store) -> None:
    connect = psycopg.connect if store.dialect == "postgres" else sqlite3.connect
    place = store.url if store.dialect == "postgres" else store.path
    onefold, events = store.open(), list[Event]()
    onefold.subscribe(events.append)

    with closing(connect(place)) as connection:
        onefold.within(connection).enqueue("email")

        assert events == [JobsEnqueued("email", "default", 1)]


async def test_what_is_refused_is_not_told(onefold: Coloured) -> None:
    await onefold.enqueue("email", unique_key="k")
    events = told(onefold)

    with pytest.raises(AlreadyEnqueued):
        await onefold.enqueue("email", unique_key="k", on_duplicate="raise")
    with pytest.raises(InvalidInput):
        await onefold.enqueue("")

    assert events == []


async def test_a_listener_that_fails_breaks_nothing(
    onefold: Coloured, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(event: Event) -> None:
        raise ValueError("out of ink")

    onefold.target.subscribe(fails)
    events = told(onefold)

    await onefold.enqueue("email")

    assert events == [JobsEnqueued("email", "default", 1)]
    assert "the work continues" in caplog.text
    assert "out of ink" in caplog.text


async def _awaits(event: Event) -> None: ...


def test_who_unsubscribes_is_told_nothing_more(sqlite_url: str) -> None:
    events: list[Event] = []
    no_listeners: list[Any] = [None, "print", _awaits]
    with Onefold(sqlite_url) as onefold:
        unsubscribe = onefold.subscribe(events.append)
        onefold.enqueue("email")

        unsubscribe()
        unsubscribe()
        onefold.enqueue("email")
        for listener in no_listeners:
            with pytest.raises(InvalidInput) as caught:
                onefold.subscribe(listener)
            assert caught.value.field == "listener"

    assert len(events) == 1
    assert not onefold.context.hooks.listeners


def test_who_subscribes_twice_is_told_once_and_may_unsubscribe_while_it_is_told() -> None:
    hooks, events = Hooks(), list[Event]()

    def once(event: Event) -> None:
        hooks.remove(once)

    for listener in (once, events.append, events.append):
        hooks.add(listener)
    hooks.tell(HAPPENED)

    assert events == [HAPPENED]


async def test_a_job_carries_the_trace_of_its_enqueue(onefold: Coloured) -> None:
    onefold.target.context.hooks.carrier = lambda: {"traceparent": "00-1-2-01"}

    one = await onefold.enqueue("email")
    many = await onefold.enqueue_many([NewJob("email"), NewJob("email", tags=["red"])])

    for enqueued in (one, *many):
        assert await trace_of(onefold, enqueued.id) == {"traceparent": "00-1-2-01"}
    tagged: Job = await onefold.get(many[1].id)
    assert tagged.tags == ("red",)


async def test_a_job_that_brings_a_trace_keeps_it(onefold: Coloured) -> None:
    onefold.target.context.hooks.carrier = lambda: {"traceparent": "ours"}

    (enqueued,) = await onefold.enqueue_many([NewJob("email", trace={"traceparent": "theirs"})])

    assert await trace_of(onefold, enqueued.id) == {"traceparent": "theirs"}


def _fails() -> dict[str, str]:
    raise ValueError("no context")


@pytest.mark.parametrize(
    "carrier",
    [
        dict,
        lambda: {"baggage": "x" * TRACE_LENGTH},
        lambda: {"baggage": "\x00"},
        lambda: {"baggage": "\ud800"},
        lambda: {"baggage": 5},
        _fails,
    ],
    ids=["empty", "long", "NUL", "half a character", "number", "error"],
)
def test_a_job_goes_without_a_trace_that_cannot_be_stored(sqlite_url: str, carrier: Any) -> None:
    with Onefold(sqlite_url) as onefold:
        onefold.context.hooks.carrier = carrier

        job = onefold.get(onefold.enqueue("email").id)

    assert job is not None
    assert job.trace is None


def test_what_is_put_around_a_handler_sees_what_leaves_it(job: Job) -> None:
    seen: list[object] = []

    @contextmanager
    def around(job: Job) -> Generator[None, None, None]:
        seen.append(job)
        try:
            yield
        except ValueError as error:
            seen.append(error)
            raise

    hooks = Hooks()
    hooks.around.append(around)
    error = ValueError("no such address")

    with pytest.raises(ValueError, match="address") as caught, hooks.running(job):
        raise error

    assert caught.value is error
    assert seen == [job, error]


def _fails_to_begin(job: Job) -> AbstractContextManager[None]:
    raise OSError("cannot begin")


@contextmanager
def _fails_to_end(job: Job) -> Generator[None, None, None]:
    try:
        yield
    finally:
        raise OSError("cannot end")


@contextmanager
def _swallows(job: Job) -> Generator[None, None, None]:
    try:
        yield
    except ValueError:
        logging.getLogger("onefold").exception("It happened.")


@pytest.mark.parametrize("around", [_fails_to_begin, _fails_to_end, _swallows])
def test_what_is_put_around_a_handler_breaks_nothing(
    job: Job, around: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hooks, ran = Hooks(), list[str]()
    hooks.around += [around, around]

    with hooks.running(job):
        ran.append("well")
    with pytest.raises(ValueError, match="no such address"), hooks.running(job):
        raise ValueError("no such address")

    assert ran == ["well"]
    assert caplog.records
