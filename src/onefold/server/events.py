"""Events as the feed tells them: a name, whose it is, and JSON that has no payload in it.

The feed: what happens here, told to those who listen over HTTP, each tenant its own.

1. It tells what this process does, as `onefold.subscribe` has it. What belongs to no tenant is left
   out.
2. Nothing is built for a tenant that nobody listens for, and nothing waits for a listener: one that
   does not keep up has a bounded buffer, and is dropped when it is full.
3. The last events of a tenant are remembered while somebody listens, and a little longer, so that
   a connection that was cut can go on where it was.

A look at a tenant's queues from time to time: what the database knows of all processes.
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
    Redelivered,
)
from onefold.model.wire import iso, iso_or_none

if TYPE_CHECKING:
    from onefold.app.onefold import Tenant
    from onefold.hooks import Hooks
    from onefold.model.event import Event
    from onefold.model.job import Job
    from onefold.model.queue import ServedQueue


ENQUEUED: Final = "jobs.enqueued"
DUPLICATE: Final = "jobs.duplicate"
STARTED: Final = "job.started"
ENDED: Final = "job.ended"
REDELIVERED: Final = "job.redelivered"
KEY: Final = "key.answered"
COUNTED: Final = "queue.counted"

NAMES: Final = (ENQUEUED, DUPLICATE, STARTED, ENDED, REDELIVERED, KEY, COUNTED)
"""What can be listened for."""


class EventMessage(msgspec.Struct, frozen=True, gc=False):
    """An event that belongs to a tenant."""

    tenant: str
    name: str
    queue: str | None
    data: bytes


def owner_of(event: Event) -> str | None:
    """The tenant that an event belongs to; None where it belongs to nobody."""
    job: Job | None = getattr(event, "job", None)
    return getattr(event, "tenant", None) if job is None else job.tenant


def told(event: Event) -> EventMessage | None:
    """An event for its tenant; None where it has none, or is not one of the server's."""
    match event:
        case JobsEnqueued() | DuplicatesSuppressed():
            name = ENQUEUED if isinstance(event, JobsEnqueued) else DUPLICATE
            return _told(
                name, event.tenant, event.queue, {"kind": event.kind, "count": event.count}
            )
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
            said = {"surface": event.surface, "route": event.route, "outcome": event.outcome}
            return _told(KEY, event.tenant, None, said)
        case _:
            return None


def _of_job(name: str, job: Job, more: dict[str, Any]) -> EventMessage:
    said = {"id": job.id, "kind": job.kind, "attempt": job.attempt, "fence": job.fence, **more}
    return _told(name, job.tenant, job.queue, said)


def _told(name: str, tenant: str, queue: str | None, said: dict[str, Any]) -> EventMessage:
    where = None if queue is None else shown(tenant, queue)
    named = {} if where is None else {"queue": where}
    return EventMessage(tenant, name, where, stamped({**named, **said}))


def stamped(said: dict[str, Any]) -> bytes:
    """What is said, with the time here."""
    return msgspec.json.encode({"at": iso(datetime.now(UTC)), **said})


BUFFER: Final = 1000
"""Events that wait for one listener."""
REMEMBERED: Final = 1000
"""Events of a tenant that a listener who comes back may have missed."""
LINGER: Final = 30.0
"""Seconds for which events are remembered after the last listener has left."""
MOST: Final = 1000
"""Listeners of one process."""

End: TypeAlias = Literal["slow", "stopping"]
Tell: TypeAlias = Callable[[str, str | None, bytes], None]
"""Takes an event's name, its queue and its data."""
Watch: TypeAlias = Callable[[Tell], Coroutine[Any, Any, None]]


class Message(msgspec.Struct, frozen=True, gc=False):
    """One event as a listener gets it."""

    id: str
    name: str
    queue: str | None
    data: bytes
    """JSON, on one line."""


class Subscription:
    """One listener: a buffer that somebody else fills and that it empties."""

    def __init__(self, wants: Callable[[Message], bool], *, size: int) -> None:
        """Made by `Feed.listen`."""
        self._wants = wants
        self._size = size
        self._waiting: deque[Message] = deque()
        self._something = asyncio.Event()
        self.end: End | None = None
        """Why nothing more will come; None while more may."""
        self.missed: str | None = None
        """The id after which it wanted to go on, where that is not known here any more."""
        self.at: str | None = None
        """The id after which it listens; None where it goes on after one that it has."""

    def put(self, message: Message) -> None:
        """Hand an event over, if it is wanted; the one too many is the end."""
        if self.end is not None or not self._wants(message):
            return
        if len(self._waiting) >= self._size:
            self.finish("slow")
            return
        self._waiting.append(message)
        self._something.set()

    def finish(self, end: End) -> None:
        """Nothing more will come; what waits can still be taken."""
        if self.end is None:
            self.end = end
            self._something.set()

    async def take(self, seconds: float) -> list[Message]:
        """What has come, in order; empty when nothing does for so many seconds, and at the end."""
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
    """One tenant's events, while somebody listens."""

    def __init__(self, *, remembered: int) -> None:
        """Nobody listens yet."""
        # Another process, and this one later, counts under another name.
        self._name = uuid4().hex[:12]
        self._count = 0
        self._memory: deque[Message] = deque(maxlen=remembered)
        self.listeners: set[Subscription] = set()
        self.watching: asyncio.Task[None] | None = None
        self.forgetting: asyncio.TimerHandle | None = None

    def tell(self, name: str, queue: str | None, data: bytes) -> None:
        """Tell everybody, and remember it."""
        self._count += 1
        message = Message(self.newest, name, queue, data)
        self._memory.append(message)
        for listener in tuple(self.listeners):
            listener.put(message)
            if listener.end is not None:
                self.listeners.discard(listener)

    @property
    def newest(self) -> str:
        """The id of the last event; before the first, one that it will come after."""
        return f"{self._name}-{self._count}"

    def rest(self) -> None:
        """Look no more at what others do."""
        if self.watching is not None:
            self.watching.cancel()
            self.watching = None

    def since(self, last: str) -> list[Message] | None:
        """What came after an event; None where that cannot be told."""
        name, _, number = last.partition("-")
        if name != self._name or not (number.isascii() and number.isdecimal()):
            return None
        if len(number) > len(str(self._count)):
            return None  # Nor is it read: there is no end to what may be sent.
        missing = self._count - int(number)
        if not 0 <= missing <= len(self._memory):
            return None
        return list(self._memory)[len(self._memory) - missing :]


class Feed:
    """Everybody who listens, by tenant."""

    def __init__(
        self,
        hooks: Hooks,
        *,
        buffer: int = BUFFER,
        remembered: int = REMEMBERED,
        linger: float = LINGER,
        most: int = MOST,
    ) -> None:
        """Of what `hooks` tells. Nothing is heard before somebody listens."""
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
        """How many there are, of all tenants."""
        return sum(len(channel.listeners) for channel in self._channels.values())

    @property
    def is_full(self) -> bool:
        """True where this process has as many listeners as it can serve."""
        return self.listeners >= self._most

    def listen(
        self,
        tenant: str,
        *,
        after: str | None = None,
        wants: Callable[[Message], bool],
        watch: Watch | None = None,
    ) -> Subscription:
        """Tell a tenant's events from now on, or from those on that came after `after`.

        To be ended with `leave`. Where `after` is not known here, `missed` is it. One `watch` of a
        tenant runs while anybody listens, and tells what it sees.
        """
        channel = self._opened(tenant)
        if watch is not None and channel.watching is None:
            channel.watching = asyncio.create_task(watch(channel.tell))
        subscription = Subscription(wants, size=max(self._buffer, self._remembered))
        seen = None if after is None else channel.since(after)
        if seen is None:
            subscription.missed, subscription.at = after, channel.newest
        for message in seen or ():
            subscription.put(message)
        channel.listeners.add(subscription)
        return subscription

    def leave(self, tenant: str, subscription: Subscription) -> None:
        """Tell a listener nothing more."""
        channel = self._channels.get(tenant)
        if channel is None:
            return
        channel.listeners.discard(subscription)
        if channel.listeners:
            return
        channel.rest()
        if channel.forgetting is None:
            loop = asyncio.get_running_loop()
            channel.forgetting = loop.call_later(self._linger, self._forget, tenant, channel)

    def close(self) -> None:
        """Let every listener take what waits for it, and end: the server is stopping.

        Whoever listens from now on is heard again.
        """
        self._hooks.remove(self._hear)
        for channel in self._channels.values():
            channel.rest()
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
        if self._channels.get(tenant) is channel:
            del self._channels[tenant]
        if not self._channels:
            self._hooks.remove(self._hear)

    def _hear(self, event: Event) -> None:
        """Called where it happened: on any thread."""
        if owner_of(event) not in self._channels or self._loop is None:
            return
        heard = told(event)
        if heard is None:
            return
        if threading.get_ident() == self._thread:
            self._pass_on(heard)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._pass_on, heard)

    def _pass_on(self, heard: EventMessage) -> None:
        channel = self._channels.get(heard.tenant)
        if channel is not None:
            channel.tell(heard.name, heard.queue, heard.data)


EVERY: Final = 2.0
"""Seconds between looks."""
SHARE: Final = 0.05
"""A look that takes long is repeated less often: no more than this part of the time is looked."""

log: logging.Logger = logging.getLogger("onefold.server")


async def watch_queues(calls: Tenant, tell: Tell) -> None:
    """Tell of every queue that has changed since the last look, until cancelled."""
    seen: dict[str, dict[str, Any]] | None = None
    while True:
        started = time.monotonic()
        try:
            queues = await calls.queues.afind_saved(limit=MOST, counts=True)
        except DatabaseError as error:
            log.warning("The queues could not be counted for those who listen: %s", error)
        else:
            found = {queue.name: _said(queue) for queue in queues}
            for name, said in found.items():
                if seen is not None and seen.get(name) != said:
                    tell(COUNTED, name, stamped({"queue": name, **said}))
            seen = found
        await asyncio.sleep(max(EVERY, (time.monotonic() - started) / SHARE))


def _said(queue: ServedQueue) -> dict[str, Any]:
    counts = {} if queue.counts is None else msgspec.structs.asdict(queue.counts)
    held = {"heldUntil": iso_or_none(queue.held_until), "heldWhy": queue.held_why}
    return {**counts, "paused": queue.paused, **held}
