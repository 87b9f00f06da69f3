"""A client in the same process as its application: it asks by ASGI, and waits for each answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from bench.payloads import encode, payload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bench.stopwatch import Stopwatch
    from bench.values import Order

    App = Callable[[Any, Any, Any], Awaitable[None]]

PATH: Final = "/payments"
OPEN_PATH: Final = "/notes"
"""Where no keys are honoured."""
WARM: Final = 50
"""Requests before the watch is started: connections are open by then, and statements prepared."""
KEPT: Final = 200
"""Keys whose answers are asked for again."""
CREATED: Final = 201
REPLAYED: Final = (b"idempotent-replayed", b"true")


class Asked(msgspec.Struct, frozen=True):
    """One request, ready to be sent."""

    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


def keyed(number: int) -> Asked:
    """A request with a key of its own."""
    return _asked(PATH, number, (b"idempotency-key", f'"{key(number)}"'.encode()))


def unkeyed(number: int, path: str) -> Asked:
    """A request without a key."""
    return _asked(path, number)


def key(number: int) -> str:
    """The key of a request."""
    return str(UUID(int=number + (1 << 100)))


def _asked(path: str, number: int, *headers: tuple[bytes, bytes]) -> Asked:
    body = encode(payload(number))
    usual = [
        (b"host", b"payments.example"),
        (b"user-agent", b"bench"),
        (b"accept", b"*/*"),
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    return Asked(path, [*usual, *headers], body)


async def ask(app: App, asked: Asked) -> list[tuple[bytes, bytes]]:
    """The headers of the answer. Another status than that of success has no figure."""
    messages: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = [{"type": "http.request", "body": asked.body}]

    async def receive() -> dict[str, Any]:
        if rest:
            return rest.pop()
        # As with a server: until the client goes, and it stays.
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": asked.path,
        "raw_path": asked.path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": asked.headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    await app(scope, receive, send)
    if messages[0]["status"] != CREATED:
        raise RuntimeError(f"{CREATED} was expected, and the answer is {messages}.")
    headers: list[tuple[bytes, bytes]] = messages[0]["headers"]
    return headers


async def ask_all(order: Order, watch: Stopwatch, app: App, requests: Sequence[Asked]) -> None:
    """Send those for warming up, and then the others with the watch running."""
    for each in requests[:WARM]:
        await ask(app, each)
    with watch.running(order.jobs):
        for each in requests[WARM:]:
            await ask(app, each)


async def ask_once(order: Order, watch: Stopwatch, app: App) -> None:
    """Every request has a key of its own."""
    await ask_all(order, watch, app, [keyed(number) for number in range(WARM + order.jobs)])


async def ask_first(app: App) -> None:
    """Have those answered that are asked for again."""
    for number in range(KEPT):
        await ask(app, keyed(number))


async def ask_again(order: Order, watch: Stopwatch, app: App) -> None:
    """Every request has been answered before."""
    requests = [keyed(number % KEPT) for number in range(WARM + order.jobs)]
    await ask_all(order, watch, app, requests)


async def ask_without(order: Order, watch: Stopwatch, app: App, path: str) -> None:
    """No request has a key."""
    requests = [unkeyed(number, path) for number in range(WARM + order.jobs)]
    await ask_all(order, watch, app, requests)
