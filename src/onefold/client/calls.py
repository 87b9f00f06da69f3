"""Calls of a client. Each is written once, as a procedure; both clients carry it out.

class ClientQueues(HttpCalls[Mode]):
    @call
    def pause(self, name: str) -> Procedure[None]: ...

client.queues.pause("email")                  # of a Client: blocks
await client.queues.pause("email")            # of an AsyncClient: a coroutine
"""

from __future__ import annotations

from functools import wraps
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from onefold import runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from onefold.client.connection import Connection
    from onefold.runtime import Procedure, Runtime

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """The calls of a `Client` return their values."""


class Awaiting:
    """The calls of an `AsyncClient` are coroutines."""


Mode = TypeVar("Mode", bound=Blocking | Awaiting)


class HttpCalls(runtime.Calls, Generic[Mode]):
    """Calls that use one connection and one runtime."""

    is_awaited: bool = False

    def __init__(self, connection: Connection, runner: Runtime, mode: type[Mode]) -> None:
        """Made by a client."""
        self._connection = connection
        self._runtime = runner
        self.is_awaited = mode is Awaiting


class call(Generic[P, T]):  # noqa: N801 - a decorator
    """A method that is written as a procedure: `Client` runs it, `AsyncClient` awaits it."""

    def __init__(self, procedure: Callable[Concatenate[Any, P], Procedure[T]]) -> None:
        """`procedure` is the method of a class of `HttpCalls`."""
        self._run = runtime.call(procedure)
        # Both clients have one name for it, and one documentation.
        self._arun = wraps(procedure)(runtime.awaited(self._run))

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: HttpCalls[Blocking], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, instance: HttpCalls[Awaiting], owner: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: Any, owner: type[HttpCalls[Any]]) -> Any:
        """The method of an instance, or its function."""
        if instance is None:
            return self._arun if owner.is_awaited else self._run
        return MethodType(self._arun if instance.is_awaited else self._run, instance)
