"""The feed of `GET /v1/events`: the events of this process, by tenant, without payloads.

Events without a tenant are for the operator, and nothing is built for a tenant without listeners. A
listener has a bounded buffer and is dropped when it is full. The last events are kept for a while,
so that a client can reconnect without a gap. `watch_queues` polls the queues of all processes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import uuid4

import msgspec

from onefold.errors import DatabaseError
from onefold.model.checks import shown
from onefold.model.event import (
    DuplicatesSuppressed,
    JobEnded,
    JobsEnqueued,
    JobStarted,
    KeyAnswered,
    LeasesExpired,
    Redelivered,
    WriteFenced,
)
from onefold.model.queue import QueueCounts
from onefold.model.wire import iso, iso_or_none

if TYPE_CHECKING:
    from onefold.app.onefold import Tenant
    from onefold.hooks import Hooks
    from onefold.model.event import Event
    from onefold.model.job import Job
    from onefold.model.queue import Queue


ENQUEUED: Final = "jobs.enqueued"
DUPLICATE: Final = "jobs.duplicate"
STARTED: Final = "job.started"
ENDED: Final = "job.ended"
REDELIVERED: Final = "job.redelivered"
KEY: Final = "key.answered"
COUNTED: Final = "queue.counted"
LEASES: Final = "leases.expired"
FENCED: Final = "write.fenced"

NAMES: Final = (
    ENQUEUED,
    DUPLICATE,
    STARTED,
    ENDED,
    REDELIVERED,
    KEY,
    COUNTED,
    LEASES,
    FENCED,
)
"""The names of the events."""


class EventMessage(msgspec.Struct, frozen=True, gc=False):
    """An event of a tenant."""

    name: str
    tenant: str
    queue: str | None
    data: bytes
    """JSON, on one line."""
    id: str = ""
    """Set by the channel that sends it."""


def tenant_of(event: Event) -> str:
    """The tenant of an event; events without one are for the operator, whose tenant is empty."""
    job: Job | None = getattr(event, "job", None)
    return getattr(event, "tenant", "") if job is None else job.tenant


def message_of(event: Event) -> EventMessage | None:
    """An event as a message for its tenant; None if it is not in the feed."""
    match event:
        case JobsEnqueued() | DuplicatesSuppressed():
            name = ENQUEUED if isinstance(event, JobsEnqueued) else DUPLICATE
            members = {"kind": event.kind, "count": event.count}
            return _message(name, event.tenant, event.queue, members)
        case JobStarted():
            more = {"worker": event.worker, "waited": event.waited.total_seconds()}
            return _of_job(STARTED, event.job, more)
        case JobEnded():
            more = {
                "outcome": event.outcome,
                "duration": event.duration.total_seconds(),
                "errorType": event.error_type,
            }
            return _of_job(ENDED, event.job, more)
        case Redelivered():
            return _of_job(REDELIVERED, event.job, {})
        case KeyAnswered():
            members = {"surface": event.surface, "route": event.route, "outcome": event.outcome}
            return _message(KEY, event.tenant, None, members)
        case _:
            return _for_operator(event)


def _for_operator(event: Event) -> EventMessage | None:
    """An event without a tenant."""
    match event:
        case LeasesExpired():
            return _message(LEASES, "", None, {"count": event.count, "buried": event.buried})
        case WriteFenced():
            members = {"id": event.job_id, "kind": event.kind, "fence": event.fence}
            return _message(FENCED, "", None, members)
        case _:
            return None


def _of_job(name: str, job: Job, more: dict[str, Any]) -> EventMessage:
    members = {"id": job.id, "kind": job.kind, "attempt": job.attempt, "fence": job.fence, **more}
    return _message(name, job.tenant, job.queue, members)


def _message(name: str, tenant: str, queue: str | None, members: dict[str, Any]) -> EventMessage:
    """A message with the current time, and the queue as the tenant knows it."""
    data = {"at": iso(datetime.now(UTC)), **members}
    where = None if queue is None else shown(tenant, queue)
    if where is not None:
        data["queue"] = where
    return EventMessage(name, tenant, where, msgspec.json.encode(data))


BUFFER: Final = 1000
"""Events that may wait for one listener."""
REMEMBERED: Final = 1000
"""Events of a tenant that are kept for a client that reconnects."""
LINGER: Final = 30.0
"""Seconds for which events are kept after the last listener has left."""
MOST: Final = 1000
"""Listeners per process."""

End: TypeAlias = Literal["slow", "stopping"]
Send: TypeAlias = Callable[[EventMessage], None]
Watch: TypeAlias = Callable[[Send, asyncio.Event], Coroutine[Any, Any, None]]


class Subscription:
    """One listener: a buffer that the channel fills and the listener empties."""

    def __init__(self, wants: Callable[[EventMessage], bool], *, size: int) -> None:
        """Made by `Feed.listen`."""
        self._wants = wants
        self._size = size
        self._waiting: deque[EventMessage] = deque()
        self._something = asyncio.Event()
        self.end: End | None = None
        """Why there will be no more events; None while there may be."""
        self.missed: str | None = None
        """The id that the client wants to continue after, if it is not known any more."""
        self.at: str | None = None
        """The id after which it listens; None if it continues after an id of the client."""
        self.watched: asyncio.Event = asyncio.Event()
        """Set once the watch has looked: what changes from now on is sent."""

    def put(self, message: EventMessage) -> None:
        """Add an event, if it is wanted; a full buffer ends the subscription."""
        if self.end is not None or not self._wants(message):
            return
        if len(self._waiting) >= self._size:
            self.finish("slow")
            return
        self._waiting.append(message)
        self._something.set()

    def finish(self, end: End) -> None:
        """Accept no more events; the buffered ones can still be taken."""
        if self.end is None:
            self.end = end
            self._something.set()

    async def take(self, seconds: float) -> list[EventMessage]:
        """The buffered events, in order; empty after `seconds` without one, and at the end."""
        if not self._waiting and self.end is None:
            self._something.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._something.wait()
            except TimeoutError:
                return []
        taken = list(self._waiting)
        self._waiting.clear()
        return taken


class Channel:
    """The events of one tenant, while it has listeners."""

    def __init__(self, *, remembered: int) -> None:
        """Start without listeners."""
        # Another channel, also a later one of this tenant, has other ids.
        self._name = uuid4().hex[:12]
        self._count = 0
        self._memory: deque[EventMessage] = deque(maxlen=remembered)
        self.listeners: set[Subscription] = set()
        self.watching: asyncio.Task[None] | None = None
        self.watched: asyncio.Event = asyncio.Event()
        self.forgetting: asyncio.TimerHandle | None = None

    def send(self, message: EventMessage) -> None:
        """Send an event to all listeners, and keep it."""
        self._count += 1
        numbered = msgspec.structs.replace(message, id=self.newest)
        self._memory.append(numbered)
        for listener in tuple(self.listeners):
            listener.put(numbered)
            if listener.end is not None:
                self.listeners.discard(listener)

    @property
    def newest(self) -> str:
        """The id of the last event; before the first event, an id that precedes it."""
        return f"{self._name}-{self._count}"

    def close(self) -> None:
        """Stop the watch, and let those go on who wait for its first look."""
        self.watched.set()
        if self.watching is not None:
            self.watching.cancel()

    def since(self, last: str) -> list[EventMessage] | None:
        """The events after an id; None if that is unknown."""
        name, _, number = last.partition("-")
        if name != self._name or not (number.isascii() and number.isdecimal()):
            return None
        if len(number) > len(str(self._count)):
            return None  # Not converted: a client may send any number of digits.
        missing = self._count - int(number)
        if not 0 <= missing <= len(self._memory):
            return None
        return list(self._memory)[len(self._memory) - missing :]


class Feed:
    """All listeners, by tenant."""

    def __init__(
        self,
        hooks: Hooks,
        *,
        buffer: int = BUFFER,
        remembered: int = REMEMBERED,
        linger: float = LINGER,
        most: int = MOST,
    ) -> None:
        """Read the events of `hooks`, as long as there are listeners."""
        self._hooks = hooks
        self._buffer = buffer
        self._remembered = remembered
        self._linger = linger
        self._most = most
        self._channels: dict[str, Channel] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    @property
    def listeners(self) -> int:
        """The number of listeners of all tenants."""
        return sum(len(channel.listeners) for channel in self._channels.values())

    def is_full(self, tenant: str) -> bool:
        """True if a tenant has as many listeners as there are free places in this process.

        So one tenant has at most half of the places that the others leave.
        """
        channel = self._channels.get(tenant)
        own = 0 if channel is None else len(channel.listeners)
        return own >= self._most - self.listeners

    def listen(
        self,
        tenant: str,
        *,
        after: str | None = None,
        wants: Callable[[EventMessage], bool],
        watch: Watch | None = None,
    ) -> Subscription:
        """Subscribe to a tenant's events from now on, or to those after the id `after`.

        Call `leave` at the end. If `after` is not known, it is in `missed`. One `watch` per tenant
        runs as long as its events are kept, and sends its own events.
        """
        channel = self._opened(tenant)
        if watch is not None and channel.watching is None:
            channel.watching = asyncio.create_task(watch(channel.send, channel.watched))
        subscription = Subscription(wants, size=max(self._buffer, self._remembered))
        subscription.watched = channel.watched
        seen = None if after is None else channel.since(after)
        if seen is None:
            subscription.missed, subscription.at = after, channel.newest
        for message in seen or ():
            subscription.put(message)
        channel.listeners.add(subscription)
        return subscription

    def leave(self, tenant: str, subscription: Subscription) -> None:
        """Remove a listener."""
        channel = self._channels.get(tenant)
        if channel is None:
            return
        channel.listeners.discard(subscription)
        if channel.listeners:
            return
        if channel.forgetting is None:
            loop = asyncio.get_running_loop()
            channel.forgetting = loop.call_later(self._linger, self._forget, tenant, channel)

    def close(self) -> None:
        """Let every listener take its buffered events and end: the server stops.

        The feed can be used again afterwards.
        """
        self._hooks.remove(self._hear)
        for channel in self._channels.values():
            channel.close()
            if channel.forgetting is not None:
                channel.forgetting.cancel()
            for listener in channel.listeners:
                listener.finish("stopping")
        self._channels.clear()

    def _opened(self, tenant: str) -> Channel:
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        channel = self._channels.get(tenant)
        if channel is None:
            channel = self._channels[tenant] = Channel(remembered=self._remembered)
            self._hooks.add(self._hear)
        if channel.forgetting is not None:
            channel.forgetting.cancel()
            channel.forgetting = None
        return channel

    def _forget(self, tenant: str, channel: Channel) -> None:
        channel.close()
        if self._channels.get(tenant) is channel:
            del self._channels[tenant]
        if not self._channels:
            self._hooks.remove(self._hear)

    def _hear(self, event: Event) -> None:
        """Called on any thread, where the event happened."""
        if tenant_of(event) not in self._channels or self._loop is None:
            return
        message = message_of(event)
        if message is None:
            return
        if threading.get_ident() == self._thread:
            self._send(message)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send, message)

    def _send(self, message: EventMessage) -> None:
        channel = self._channels.get(message.tenant)
        if channel is not None:
            channel.send(message)


EVERY: Final = 2.0
"""Seconds between two polls."""
SHARE: Final = 0.05
"""The maximum share of time for polls: slow polls are made less often."""

log: logging.Logger = logging.getLogger("onefold.server")


async def watch_queues(calls: Tenant, send: Send, watched: asyncio.Event) -> None:
    """Send an event for each queue that has changed since the last poll, until cancelled."""
    seen: dict[str, dict[str, Any]] | None = None
    fails = False
    while True:
        started = time.monotonic()
        try:
            queues = await _counted(calls)
        except DatabaseError as error:
            if not fails:
                log.warning("Queues cannot be counted for the listeners of events: %s", error)
            fails = True
        else:
            fails = False
            found = {name: _said(queue) for name, queue in queues.items()}
            # A queue without settings is not found once it is empty.
            emptied = {name: _emptied(said) for name, said in (seen or {}).items()}
            for name, said in (emptied | found).items():
                if seen is not None and seen.get(name) != said:
                    send(_message(COUNTED, calls.context.tenant, name, said))
            seen = found
        finally:
            watched.set()
        await asyncio.sleep(max(EVERY, (time.monotonic() - started) / SHARE))


async def _counted(calls: Tenant) -> dict[str, Queue]:
    """The queues of a tenant by name, also those that only have jobs; for the operator, of all."""
    queues = {queue.name: queue for queue in await calls.queues.afind(limit=MOST)}
    # With the counts of their dead jobs.
    return queues | {
        queue.name: queue for queue in await calls.queues.afind(saved=True, limit=MOST)
    }


def _emptied(said: dict[str, Any]) -> dict[str, Any]:
    return said | msgspec.structs.asdict(QueueCounts())


def _said(queue: Queue) -> dict[str, Any]:
    counts = {} if queue.counts is None else msgspec.structs.asdict(queue.counts)
    held = {"heldUntil": iso_or_none(queue.held_until), "heldWhy": queue.held_why}
    return {**counts, "paused": queue.paused, **held}
