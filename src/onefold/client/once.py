"""`once` over HTTP: run something once per key and remember its result, as in-process."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from onefold.calls.claims import SURFACE
from onefold.calls.once import OnceClaim
from onefold.calls.procedure import waits
from onefold.client.flow import Pause
from onefold.client.flows import claims
from onefold.errors import Busy, InvalidInput, KeyReused, OutcomeUnknown
from onefold.model.claim import Mismatch, Replay, Unknown, Won
from onefold.model.json_text import sorted_payload
from onefold.model.timestamps import span
from onefold.model.unique import fingerprint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta
    from types import TracebackType

    from onefold.calls.claims import ClaimOptions
    from onefold.calls.once import BusyPolicy
    from onefold.client.async_driver import AsyncDriver
    from onefold.client.flow import Ask, Flow
    from onefold.client.sync_driver import SyncDriver
    from onefold.model.claim import ClaimAnswer

P = ParamSpec("P")
R = TypeVar("R")

POLICIES: Final = ("raise", "skip")


@dataclass(frozen=True, slots=True)
class OnceWish:
    """What `once` was told."""

    ask: Ask
    name: str
    key: str | Callable[..., str] | None
    options: ClaimOptions
    busy: BusyPolicy = "raise"
    wait: timedelta | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.busy not in POLICIES:
            raise InvalidInput("busy", f"must be raise or skip, got {self.busy!r}")
        if self.wait is not None:
            span(self.wait, "wait")

    def enter(self) -> Flow[OnceClaim | None]:
        """Claim, waiting while somebody else is at work, if told to."""
        if not isinstance(self.key, str):
            raise InvalidInput("key", "must be a string where once() is used with `with`")
        pauses = waits(self.wait)
        while True:
            answer = yield from claims.claim(self.ask, self.name, self.key, SURFACE, self.options)
            if not isinstance(answer, Busy) or (pause := next(pauses, None)) is None:
                return self._entered(answer)
            yield Pause(pause)

    def _entered(self, answer: ClaimAnswer) -> OnceClaim | None:
        match answer:
            case Won() | Replay():
                return OnceClaim(answer)
            case Busy():
                if self.busy == "skip":
                    return None
                raise answer
            case Mismatch(key):
                raise KeyReused(key=key)
            case Unknown(key, _, since):
                raise OutcomeUnknown(key=key, since=since)

    def leave(self, entered: OnceClaim | None, error: BaseException | None) -> Flow[None]:
        """Settle what was done; give back what failed.

        What was interrupted is left to its lease: nobody knows how far it came.
        """
        if entered is None or entered.claim is None:
            return
        if error is None:
            yield from claims.settle(self.ask, entered.claim, entered.result)
        elif isinstance(error, Exception):
            try:
                yield from claims.release(self.ask, entered.claim)
            except Exception as failure:  # noqa: BLE001 - it must not hide the error of the body
                key = entered.claim.key.key
                error.add_note(f"The key {key!r} could not be given back: {failure}")

    def bound(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> OnceWish:
        """For one call of a decorated function: its key is given, computed or digested."""
        if isinstance(self.key, str):
            return self
        if self.key is not None:
            return replace(self, key=self.key(*args, **kwargs))
        arguments = inspect.signature(function).bind(*args, **kwargs)
        arguments.apply_defaults()
        try:
            text = sorted_payload(dict(arguments.arguments))
        except InvalidInput as error:
            raise InvalidInput("key", f"cannot be made of the arguments: {error.reason}") from error
        named = f"{function.__module__}.{function.__qualname__}"
        return replace(self, key=fingerprint(named, text))


class RemoteOnce:
    """`once` for `with`, and for functions."""

    def __init__(self, driver: SyncDriver, wish: OnceWish) -> None:
        """Made by `Client.once`; for one use at a time."""
        self._driver = driver
        self._wish = wish
        self._entered: OnceClaim | None = None

    def __enter__(self) -> OnceClaim | None:
        """Claim the key. None where it is busy and `busy="skip"`."""
        self._entered = self._driver.run(self._wish.enter())
        return self._entered

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Settle, or release after a failure."""
        self._driver.run(self._wish.leave(self._entered, error))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorate: the second call with the same key gets the first one's result."""
        if inspect.iscoroutinefunction(function):
            raise InvalidInput("once", "is for plain functions; an AsyncClient has one for others")

        @wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | None:
            with RemoteOnce(self._driver, self._wish.bound(function, args, kwargs)) as claim:
                if claim is None:
                    return None
                if claim.won:
                    claim.result = function(*args, **kwargs)
            return cast("R | None", claim.result)

        return wrapper


class AsyncRemoteOnce:
    """`once` for `async with`, and for coroutine functions."""

    def __init__(self, driver: AsyncDriver, wish: OnceWish) -> None:
        """Made by `AsyncClient.once`; for one use at a time."""
        self._driver = driver
        self._wish = wish
        self._entered: OnceClaim | None = None

    async def __aenter__(self) -> OnceClaim | None:
        """Claim the key. None where it is busy and `busy="skip"`."""
        self._entered = await self._driver.run(self._wish.enter())
        return self._entered

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Settle, or release after a failure."""
        await self._driver.run(self._wish.leave(self._entered, error))

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R | None]]:
        """Decorate: the second call with the same key gets the first one's result."""
        if not inspect.iscoroutinefunction(function):
            raise InvalidInput("once", "is for coroutine functions; a Client has one for others")

        @wraps(function)
        async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | None:
            wish = self._wish.bound(function, args, kwargs)
            async with AsyncRemoteOnce(self._driver, wish) as claim:
                if claim is None:
                    return None
                if claim.won:
                    claim.result = await function(*args, **kwargs)
            return cast("R | None", claim.result)

        return wrapper
