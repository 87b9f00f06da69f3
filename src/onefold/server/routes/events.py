"""`GET /v1/events`: the events of the server, as server-sent events."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from onefold.errors import DatabaseError
from onefold.model.wire import BadBody, Query
from onefold.server.auth import still_counts
from onefold.server.events import NAMES, End, watch_queues
from onefold.server.problems import refused
from onefold.server.request_context import Reply, RequestContext
from onefold.server.routing import STREAM, RouteTable
from onefold.web.problems import UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from onefold.app.onefold import Tenant
    from onefold.server.app import ServerApp
    from onefold.server.events import EventMessage, Subscription

ROUTES: Final = RouteTable("events")

Farewell: TypeAlias = End | Literal["revoked", "unavailable"]

HEARTBEAT: Final = 15.0
"""Seconds of silence after which a comment is sent: less than the timeouts of proxies."""
CHECK: Final = 1.0
"""Seconds between two checks of the API key: the stream of a revoked key ends."""
RETRY: Final = 3000
"""Milliseconds after which a disconnected client should reconnect."""

HEADERS: Final = (
    ("content-type", "text/event-stream; charset=utf-8"),
    # Otherwise nginx collects events before it sends them.
    ("x-accel-buffering", "no"),
)
_ENDS: Final[dict[Farewell, tuple[str, str]]] = {
    "slow": (
        "dropped",
        (
            "You read too slowly: more events wait for you than are kept. Reconnect with"
            " Last-Event-ID; if events are lost, you receive an event `gap`."
        ),
    ),
    "stopping": (
        "stopping",
        "The server is stopping. Reconnect; another process does not know which events you missed.",
    ),
    "revoked": ("revoked", "The API key is not valid any more. Reconnect with a valid key."),
    "unavailable": (
        "unavailable",
        "The API key cannot be checked: no database. Reconnect with Last-Event-ID.",
    ),
}


class EventsQuery(Query):
    """Which events are wanted; by default all of the tenant."""

    queue: str | None = None
    """Only events of this queue."""
    event: tuple[str, ...] = ()
    """Names, one per parameter."""


@ROUTES.add("GET", "/v1/events", scope="work", query=EventsQuery, answers={200: STREAM})
async def stream_events(request: RequestContext) -> Reply:
    """Stream the events of your jobs and keys.

    Server-sent events of this process, and every few seconds, as `queue.counted`, the changes of
    all processes in a queue. A stream is not continued across processes: a client that reconnects
    with a Last-Event-ID that this process does not know receives an event `gap`.
    """
    query: EventsQuery = request.query
    if unknown := [name for name in query.event if name not in NAMES]:
        raise BadBody("event", f"must be one of {', '.join(NAMES)}, got {unknown[0]!r}", of="query")
    after = request.headers.get("last-event-id") or None
    counts = partial(still_counts, request)
    pieces = await stream(request.server, request.calls, counts, after=after, wants=_wants(query))
    if pieces is None:
        detail = "This server has no place for another listener of yours. Close one, or try again."
        raise refused(UNAVAILABLE, detail, retry_after=5)
    return Reply(200, pieces, HEADERS)


def _wants(query: EventsQuery) -> Callable[[EventMessage], bool]:
    names, queue = frozenset(query.event), query.queue

    def wants(message: EventMessage) -> bool:
        return (not names or message.name in names) and (queue is None or message.queue == queue)

    return wants


def _everything(message: EventMessage) -> bool:
    del message
    return True


async def stream(
    server: ServerApp,
    calls: Tenant,
    counts: Callable[[], Awaitable[bool]],
    *,
    after: str | None = None,
    wants: Callable[[EventMessage], bool] = _everything,
) -> AsyncGenerator[bytes] | None:
    """The events of a tenant, while the caller `counts`: its key is valid.

    None if the tenant has no free place.
    """
    if server.feed.is_full(calls.context.tenant):
        return None
    pieces = _pieces(server, calls, counts, after, wants)
    # It takes the place here, or requests that come at the same time would all see it free.
    await anext(pieces)
    return pieces


async def _pieces(
    server: ServerApp,
    calls: Tenant,
    counts: Callable[[], Awaitable[bool]],
    after: str | None,
    wants: Callable[[EventMessage], bool],
) -> AsyncGenerator[bytes]:
    """The pieces of a stream; the first is empty."""
    tenant = calls.context.tenant
    checked = time.monotonic()
    watch = partial(watch_queues, calls)
    subscription = server.feed.listen(tenant, after=after, wants=wants, watch=watch)
    if server.draining:
        subscription.finish("stopping")
    try:
        yield b""
        await subscription.watched.wait()
        yield _greeting(subscription)
        while True:
            taken = await subscription.take(HEARTBEAT)
            if time.monotonic() - checked >= CHECK:
                checked = time.monotonic()
                if (refusal := await _refusal(counts)) is not None:
                    yield farewell(refusal)
                    return
            if taken:
                yield b"".join(map(_frame, taken))
            elif subscription.end is not None:
                yield farewell(subscription.end)
                return
            else:
                yield b": still here\n\n"
    finally:
        server.feed.leave(tenant, subscription)


async def _refusal(counts: Callable[[], Awaitable[bool]]) -> Farewell | None:
    """Why the stream must end; None if it may go on."""
    try:
        return None if await counts() else "revoked"
    except DatabaseError:
        return "unavailable"


def _greeting(subscription: Subscription) -> bytes:
    """The first bytes: the client sees that it listens from now on, and which events are lost.

    It has an id, so that a client that is cut off before the first event misses none.
    """
    at = "" if subscription.at is None else f"id: {subscription.at}\n"
    if subscription.missed is None:
        return f"retry: {RETRY}\n{at}: listening\n\n".encode()
    data = {
        "after": subscription.missed,
        "detail": "This process does not know the events after this one: they are too old, or"
        " another process sent it. Read the jobs themselves.",
    }
    # The id is last: a client that is cut off before it has read the gap receives it again.
    gap = _unnumbered("gap", data)
    return f"retry: {RETRY}\n: listening\n\n".encode() + gap + f"{at}\n".encode()


def farewell(end: Farewell) -> bytes:
    """The last event of a stream: why it ends."""
    name, detail = _ENDS[end]
    return _unnumbered(name, {"detail": detail})


def _frame(message: EventMessage) -> bytes:
    head = f"id: {message.id}\nevent: {message.name}\ndata: ".encode()
    return head + message.data + b"\n\n"


def _unnumbered(name: str, data: dict[str, str]) -> bytes:
    """An event without an id, so that a client reconnects with the id of the last real event."""
    return f"event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
