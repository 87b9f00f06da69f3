"""Listen to a server: connect, read, and come back where the connection has ended."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Generator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from onefold.client import wire
from onefold.client.connection import LEAST_REFUSAL
from onefold.client.errors import ServerError, Unreachable
from onefold.client.event import RemoteEvent
from onefold.client.event_stream import EventStream, NotEvents
from onefold.client.flow import Pause, Reply, Send, get, place
from onefold.client.problems import error_of
from onefold.client.retrying import asked_for, is_passing
from onefold.errors import InvalidInput
from onefold.model import checks

if TYPE_CHECKING:
    from onefold.client.event_stream import Block
    from onefold.client.patience import Patience

SILENCE: Final = 45.0
"""Seconds without a byte after which a connection is dead: the server says something every 15."""
LONGEST_RETRY: Final = 60.0
"""Seconds; the server asks for three."""

FAREWELLS: Final = frozenset({"dropped", "stopping", "revoked", "unavailable"})
"""The server's last word on a connection: come back. What was missed by it is told as a gap."""

SENDABLE: Final = re.compile(r"[\x20-\x7e]{0,512}")
"""An id that a header can take back to the server; ours have some twenty characters."""
MEDIA_TYPE: Final = "text/event-stream"
ENDED: Final = "the stream ended before anything was said"


class Open(msgspec.Struct, frozen=True):
    """Connect. The answer is a `Reply`; the body of one that is no refusal is to be read."""

    send: Send
    silence: float = SILENCE


class Read(msgspec.Struct, frozen=True):
    """Some bytes of what was opened; none at its end."""


class Heard(msgspec.Struct, frozen=True):
    """An event; None where the server has said that it tells what happens from now on."""

    event: RemoteEvent | None = None


class Ear(msgspec.Struct, kw_only=True):
    """What is listened for, and how far a listener has come."""

    path: str
    query: dict[str, Any]
    last: str | None = None
    """The event behind which to go on."""
    retry: float = 0.0
    """Seconds that the server asks for before anybody comes back."""
    is_heard: bool = False
    """True where the connection has said something."""

    def note(self, block: Block) -> None:
        """What is to be known when the connection has ended."""
        self.is_heard = True
        if block.retry is not None:
            self.retry = min(block.retry / 1000, LONGEST_RETRY)
        if block.id is not None and SENDABLE.fullmatch(block.id):
            self.last = block.id


Listening: TypeAlias = Generator[Open | Read | Heard | Pause, Any, None]


def ear(*, queue: str | None, event: object, after: str | None) -> Ear:
    """Check what is wanted."""
    wanted = [checks.name(name, "event") for name in checks.listed(event, "event", "names")]
    query = {
        "queue": None if queue is None else checks.name(queue, "queue"),
        "event": wanted or None,
    }
    if after is not None and not SENDABLE.fullmatch(checks.key(after, "after")):
        raise InvalidInput("after", f"must be the id of an event, got {after!r}")
    return Ear(path=place("events"), query=query, last=after)


def listen(
    ear: Ear,
    url: str,
    patience: Patience,
    *,
    clock: Callable[[], float] = time.monotonic,
    dice: Callable[[], float] = random.random,
) -> Listening:
    """Tell events for ever. Raises where the server refuses, or is away for too long."""
    failed, since = 0, clock()
    while True:
        ear.is_heard = False
        failure, reply = Unreachable(url, ENDED), None
        try:
            reply = yield Open(_request(ear, patience))
            if reply.status < LEAST_REFUSAL:
                yield from _hear(ear, reply)
            elif not is_passing(reply):
                raise error_of(reply)
        except Unreachable as error:
            failure = error
        if ear.is_heard:
            failed, since = 0, clock()
        else:
            failed += 1
        wait = max(patience.pause(failed or 1, dice()), ear.retry, asked_for(reply))
        is_over = clock() + wait >= since + patience.deadline.total_seconds()
        if failed >= patience.tries or (failed and is_over):
            if reply is not None and reply.status >= LEAST_REFUSAL:
                raise error_of(reply)
            raise Unreachable(failure.url, failure.reason, tries=failed) from failure.__cause__
        yield Pause(wait)


def _request(ear: Ear, patience: Patience) -> Send:
    headers = {"Accept": MEDIA_TYPE, "Cache-Control": "no-store"}
    if ear.last is not None:
        headers["Last-Event-ID"] = ear.last
    request = get(ear.path, ear.query)
    timeout = patience.timeout.total_seconds()
    return msgspec.structs.replace(request, headers=headers, timeout=timeout)


def _hear(ear: Ear, reply: Reply) -> Listening:
    """What one connection tells, until it ends."""
    if not reply.headers.get("content-type", "").startswith(MEDIA_TYPE):
        raise _unreadable(reply, "it is no stream of events")
    stream = EventStream()
    while piece := (yield Read()):
        for block in _fed(stream, piece, reply):
            ear.note(block)
            if block.data and block.name in FAREWELLS:
                return
            if block.data:
                yield Heard(_event(reply, block))
            elif block.retry is not None:
                yield Heard()


def _fed(stream: EventStream, piece: bytes, reply: Reply) -> list[Block]:
    try:
        return stream.feed(piece)
    except NotEvents as error:
        raise _unreadable(reply, str(error)) from error


def _event(reply: Reply, block: Block) -> RemoteEvent:
    try:
        said = wire.snaked(msgspec.json.decode(block.data, type=dict[str, Any]))
        at = msgspec.convert(said.get("at"), datetime | None)
        queue = msgspec.convert(said.get("queue"), str | None)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(reply, f"the event {block.name!r}: {error}") from error
    return RemoteEvent(name=block.name, id=block.id, at=at, queue=queue, data=said)


def _unreadable(reply: Reply, reason: str) -> ServerError:
    detail = f"and the client cannot read it: {reason}. Is there an Onefold server at this URL?"
    return ServerError(reply.status, detail)
