"""Events of a server as an iterator that reconnects and continues after the last event."""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from onefold.client.connection import (
    FIRST_REJECTION,
    Connection,
    is_transient,
    unreadable,
    wait_asked_by,
)
from onefold.client.event_stream import EventBlock, EventStream, NotEvents
from onefold.client.problems import Unreachable, error_of
from onefold.client.requests import (
    ClientRequest,
    ClientResponse,
    path,
    snake_members,
    with_query,
)
from onefold.errors import InvalidInput, OnefoldError, UsageError
from onefold.model import checks
from onefold.runtime import Runtime, Send

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from onefold.client.aiohttp_sender import AiohttpSender, AiohttpStream
    from onefold.client.urllib3_sender import Urllib3Sender, Urllib3Stream
    from onefold.runtime import Procedure

    Opening: TypeAlias = asyncio.Task[tuple[ClientResponse, AiohttpStream | None]]

SILENCE: Final = 45.0
"""Seconds without a byte after which a connection is dead. The server sends one every 15."""
LONGEST_RETRY: Final = 60.0
"""The limit in seconds of the stream's own `retry`; a server sends three."""
FAREWELLS: Final = frozenset({"dropped", "stopping", "revoked", "unavailable"})
"""The last events of a connection: reconnect."""
SENDABLE: Final = re.compile(r"[\x20-\x7e]{0,512}")
"""An id that fits into a header; those of a server have about twenty characters."""
MEDIA_TYPE: Final = "text/event-stream"
ENDED: Final = "the stream ended before its first event"
CLOSED: Final = "These events have ended. Call events(after=…) to continue after the last one."


class RemoteEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event."""

    name: str
    """`jobs.enqueued`, `jobs.duplicate`, `job.started`, `job.ended`, `job.redelivered`,
    `key.answered`, `queue.counted`; or `gap` if some were missed."""
    id: str | None = None
    """Give it as `after=` to continue after this event; a gap has none."""
    at: datetime | None = None
    queue: str | None = None
    data: Mapping[str, Any] = {}
    """All fields, in snake_case."""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are wanted."""

    query: dict[str, Any] = {}
    after: str | None = None


def event_filter(*, queue: str | None, event: object, after: str | None) -> EventFilter:
    """A filter, checked now: its first request may be sent much later."""
    names = [checks.name(name, "event") for name in checks.listed(event, "event", "names")]
    query = {
        "queue": None if queue is None else checks.name(queue, "queue"),
        "event": names or None,
    }
    if after is not None and not SENDABLE.fullmatch(checks.key(after, "after")):
        raise InvalidInput("after", f"must be the id of an event, got {after!r}")
    return EventFilter(query=query, after=after)


class OpenStream(msgspec.Struct, frozen=True):
    """Connect; returns the head of the response. A rejection has its body."""

    request: ClientRequest


class ReadStream(msgspec.Struct, frozen=True):
    """Read from the open stream; returns bytes, none at its end."""


class WaitBeforeRetry(msgspec.Struct, frozen=True):
    """Wait, or return early if the events are closed."""

    seconds: float


class EventListener:
    """Reads events over as many connections as necessary.

    Its state is that between two commands, so that a caller may abandon `next_event` at any point
    and call it again.
    """

    def __init__(
        self,
        connection: Connection,
        wanted: EventFilter,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """It connects with the first `next_event`."""
        self.last_id: str | None = wanted.after
        self.closed: threading.Event = threading.Event()
        self._connection = connection
        self._path = with_query(path("events"), wanted.query)
        self._clock = clock
        self._jitter = jitter
        self._response: ClientResponse | None = None
        self._stream = EventStream()
        self._blocks: deque[EventBlock] = deque()
        self._has_received = False
        self._retry = 0.0
        self._resume_at = 0.0
        self._failed = 0
        self._since = clock()

    @property
    def is_connected(self) -> bool:
        """True while a connection is open."""
        return self._response is not None

    def disconnected(self) -> None:
        """The connection is closed: the next `next_event` connects."""
        self._response = None
        self._blocks.clear()

    def next_event(self) -> Procedure[RemoteEvent | None]:
        """The next event; None for the greeting of a connection, or if the events are closed."""
        try:
            while not self.closed.is_set():
                while self._blocks:
                    block = self._blocks.popleft()
                    self._note(block)
                    if block.data and block.name in FAREWELLS:
                        self._plan_retry()
                    elif block.data:
                        return self._event(block)
                    elif block.retry is not None:
                        return None
                yield from self._receive()
        except OnefoldError:
            self.closed.set()
            raise
        return None

    def _receive(self) -> Procedure[None]:
        """Wait if a retry is planned, connect if necessary, and read some bytes."""
        try:
            if self._resume_at and (rest := self._resume_at - self._clock()) > 0:
                yield Send(WaitBeforeRetry(rest))
            self._resume_at = 0.0
            if self._response is None:
                yield from self._connect()
                return
            piece = yield Send(ReadStream())
        except Unreachable as failure:
            self._plan_retry(failure)
            return
        if self.closed.is_set():
            return
        if not piece:
            self._plan_retry()
            return
        try:
            self._blocks.extend(self._stream.feed(piece))
        except NotEvents as error:
            raise unreadable(self._response, str(error)) from error

    def _connect(self) -> Procedure[None]:
        if self.closed.is_set():
            return
        headers = {"Accept": MEDIA_TYPE, "Cache-Control": "no-store"}
        if self.last_id is not None:
            headers["Last-Event-ID"] = self.last_id
        timeout = self._connection.retry.timeout.total_seconds()
        request = ClientRequest(method="GET", path=self._path, headers=headers, timeout=timeout)
        response: ClientResponse | None = yield Send(OpenStream(request))
        if response is None or self.closed.is_set():
            return
        if response.status >= FIRST_REJECTION:
            if not is_transient(response):
                raise error_of(response)
            self._plan_retry(rejection=response)
        elif not response.headers.get("content-type", "").startswith(MEDIA_TYPE):
            raise unreadable(response, "it is not a stream of events")
        else:
            self._response, self._stream = response, EventStream()

    def _plan_retry(
        self, failure: Unreachable | None = None, *, rejection: ClientResponse | None = None
    ) -> None:
        """Reconnect after a pause; raises if the retry policy is used up."""
        self.disconnected()
        if self.closed.is_set():
            return
        if self._has_received:
            self._failed, self._since = 0, self._clock()
        else:
            self._failed += 1
        self._has_received = False
        failed, retry = self._failed, self._connection.retry
        pause = retry.pause(failed or 1, self._jitter())
        wait = max(pause, self._retry, wait_asked_by(rejection))
        is_late = self._clock() + wait >= self._since + retry.deadline.total_seconds()
        if failed >= retry.tries or (failed and is_late):
            if rejection is not None:
                raise error_of(rejection)
            cause = None if failure is None else failure.__cause__
            reason = ENDED if failure is None else failure.reason
            raise Unreachable(self._connection.url, reason, tries=failed) from cause
        # A time, so that callers who abandon the wait again and again also reach its end.
        self._resume_at = self._clock() + wait

    def _note(self, block: EventBlock) -> None:
        """Remember what the next connection needs."""
        self._has_received = True
        if block.retry is not None:
            self._retry = min(block.retry / 1000, LONGEST_RETRY)
        if block.id is not None and SENDABLE.fullmatch(block.id):
            self.last_id = block.id

    def _event(self, block: EventBlock) -> RemoteEvent:
        assert self._response is not None
        try:
            data = snake_members(msgspec.json.decode(block.data, type=dict[str, Any]))
            at = msgspec.convert(data.get("at"), datetime | None)
            queue = msgspec.convert(data.get("queue"), str | None)
        except (msgspec.DecodeError, RecursionError) as error:
            raise unreadable(self._response, f"the event {block.name!r}: {error}") from error
        return RemoteEvent(name=block.name, id=block.id, at=at, queue=queue, data=data)


class BlockingStream:
    """Carries out the commands of a listener with the sender of a `Client`."""

    def __init__(self, sender: Urllib3Sender, closed: threading.Event) -> None:
        """`closed` ends a wait."""
        self._sender = sender
        self._closed = closed
        self._stream: Urllib3Stream | None = None

    def send(self, request: Any) -> Any:
        """Carry out one command."""
        match request:
            case WaitBeforeRetry(seconds):
                return self._closed.wait(seconds)
            case OpenStream(request):
                self.close()
                response, self._stream = self._sender.open(request, silence=SILENCE)
                return response
            case _:
                return b"" if self._stream is None else self._stream.read()

    async def asend(self, request: Any) -> Any:
        """Rejected: it blocks."""
        return await self._sender.asend(request)

    def shut_down(self) -> None:
        """End a read that waits in another thread."""
        if (stream := self._stream) is not None:
            stream.shut_down()

    def close(self) -> None:
        """Close the connection."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


class RemoteEvents:
    """The events of a server from now on. Made by `Client.events`.

    `with` connects and returns when the server listens. Without it, the first `next` connects.
    """

    def __init__(self, sender: Urllib3Sender, connection: Connection, wanted: EventFilter) -> None:
        """It connects later."""
        self._listener = EventListener(connection, wanted)
        self._stream = BlockingStream(sender, self._listener.closed)
        self._runtime = Runtime(sender=self._stream)
        self._in_use = threading.Lock()

    @property
    def last_id(self) -> str | None:
        """The last event: `events(after=…)` continues after it, also in another process."""
        return self._listener.last_id

    def __enter__(self) -> Self:
        if not self._listener.is_connected:
            try:
                self._next()
            except StopIteration:
                raise UsageError(CLOSED) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RemoteEvent:
        while (event := self._next()) is None:
            pass
        return event

    def close(self) -> None:
        """Close the connection. This also ends a `next` that waits in another thread."""
        self._listener.closed.set()
        self._stream.shut_down()
        if self._in_use.acquire(blocking=False):
            try:
                self._stream.close()
            finally:
                self._in_use.release()

    def _next(self) -> RemoteEvent | None:
        with self._in_use:
            try:
                event = self._runtime.run(self._listener.next_event())
            except BaseException:
                # Bytes may have been read and lost: the next call connects again.
                self._listener.disconnected()
                self._stream.close()
                raise
            if event is None and self._listener.closed.is_set():
                self._stream.close()
                raise StopIteration
            return event


class AwaitedStream:
    """Carries out the commands of a listener with the sender of an `AsyncClient`."""

    def __init__(self, sender: AiohttpSender) -> None:
        """It connects later."""
        self._sender = sender
        self._stream: AiohttpStream | None = None
        self._opening: Opening | None = None

    def send(self, request: Any) -> Any:
        """Rejected: it is awaited."""
        return self._sender.send(request)

    async def asend(self, request: Any) -> Any:
        """Carry out one command. A cancelled one loses nothing."""
        match request:
            case WaitBeforeRetry(seconds):
                return await asyncio.sleep(seconds)
            case OpenStream(request):
                return await self._open(request)
            case _:
                return b"" if self._stream is None else await self._stream.read()

    async def _open(self, request: ClientRequest) -> ClientResponse | None:
        """Connect; None if it was closed meanwhile.

        In a task: a caller that is cancelled finds it in progress, or done, the next time.
        """
        if (opening := self._opening) is None:
            self.close()
            opening = self._opening = asyncio.create_task(self._connected(request))
            opening.add_done_callback(_retrieve_error)
        if not opening.done():
            await asyncio.wait((opening,))
        if self._opening is not opening:
            return None
        self._opening = None
        response, self._stream = opening.result()
        return response

    async def _connected(
        self, request: ClientRequest
    ) -> tuple[ClientResponse, AiohttpStream | None]:
        response, stream = await self._sender.open(request, silence=SILENCE)
        if stream is not None:
            await stream.read_ahead()
        return response, stream

    def close(self) -> None:
        """Close the connection, or stop connecting."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            opening.add_done_callback(_close_opened)


class AsyncRemoteEvents:
    """`RemoteEvents` for `async with` and `async for`. Made by `AsyncClient.events`.

    A cancelled `anext` loses no event: the next one continues.
    """

    def __init__(self, sender: AiohttpSender, connection: Connection, wanted: EventFilter) -> None:
        """It connects later."""
        self._listener = EventListener(connection, wanted)
        self._stream = AwaitedStream(sender)
        self._runtime = Runtime(sender=self._stream)

    @property
    def last_id(self) -> str | None:
        """The last event: `events(after=…)` continues after it, also in another process."""
        return self._listener.last_id

    async def __aenter__(self) -> Self:
        if not self._listener.is_connected:
            try:
                await self._next()
            except StopAsyncIteration:
                raise UsageError(CLOSED) from None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RemoteEvent:
        while (event := await self._next()) is None:
            pass
        return event

    async def close(self) -> None:
        """Close the connection."""
        self._listener.closed.set()
        self._stream.close()

    async def _next(self) -> RemoteEvent | None:
        event = None
        try:
            event = await self._runtime.arun(self._listener.next_event())
        finally:
            if event is None and self._listener.closed.is_set():
                self._stream.close()
        if event is None and self._listener.closed.is_set():
            raise StopAsyncIteration
        return event


def _retrieve_error(opening: Opening) -> None:
    """Otherwise asyncio logs the error of a task that was abandoned."""
    if not opening.cancelled():
        opening.exception()


def _close_opened(opening: Opening) -> None:
    """Close what was opened after all."""
    if opening.cancelled() or opening.exception() is not None:
        return
    _, stream = opening.result()
    if stream is not None:
        stream.close()
