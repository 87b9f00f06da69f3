"""Both clients with one interface, so that each test runs with both."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Self, TypeAlias

import pytest

from onefold.client import AsyncClient, AsyncRemoteEvents, Client, RemoteEvent
from tests.client.running import stage
from tests.fixtures.colours import pytest_pyfunc_call
from tests.fixtures.place import place, postgres_place

__all__ = ["connect", "place", "postgres_place", "pytest_pyfunc_call", "stage"]

FAST: dict[str, Any] = {
    "first_pause": timedelta(milliseconds=1),
    "longest_pause": timedelta(milliseconds=5),
}
"""Pauses that a test can afford."""


NOUNS = {"queues", "keys", "schedules", "dead", "deliveries", "statistics", "workers"}


class BlockingCalls:
    """Calls of an `AsyncClient`, blocking: each runs the loop until it has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, calls: Any) -> None:
        self._loop = loop
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._calls, name)
        if name in NOUNS:
            return BlockingCalls(self._loop, called)

        def call(*arguments: Any, **options: Any) -> Any:
            return self._loop.run_until_complete(called(*arguments, **options))

        return call


class Blocking(BlockingCalls):
    """A blocking `AsyncClient`."""

    def __init__(self, url: str, **options: Any) -> None:
        self._client = AsyncClient(url, **options)
        super().__init__(asyncio.new_event_loop(), self._client)

    def events(self, **options: Any) -> "BlockingEvents":
        return BlockingEvents(self._loop, self._client.events(**options))

    def shut(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


class BlockingEvents:
    """`AsyncRemoteEvents` for who cannot wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, events: AsyncRemoteEvents) -> None:
        self._loop = loop
        self._events = events

    @property
    def last_id(self) -> str | None:
        return self._events.last_id

    def __enter__(self) -> Self:
        self._loop.run_until_complete(self._events.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._events.close())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RemoteEvent:
        try:
            return self._loop.run_until_complete(self._events.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


Connect: TypeAlias = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients of one colour, and closes them."""
    with contextlib.ExitStack() as stack:

        def make(url: str, **options: Any) -> Any:
            if request.param == "sync":
                return stack.enter_context(Client(url, **{**FAST, **options}))
            client = Blocking(url, **{**FAST, **options})
            stack.callback(client.shut)
            return client

        yield make
