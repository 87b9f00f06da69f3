"""`once` over HTTP: run something once per key and store its result."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from onefold.client.claims import HttpClaims
from onefold.effects.claims import SURFACE, ClaimOptions
from onefold.effects.once import OnceClaim
from onefold.errors import Busy, InvalidInput, KeyReused, OutcomeUnknown
from onefold.model import checks
from onefold.model.claim import Mismatch, Replay, Unknown, Won
from onefold.model.json_text import sorted_payload
from onefold.model.timestamps import span
from onefold.model.unique import fingerprint
from onefold.runtime import Pause, waits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta
    from types import TracebackType

    from onefold.client.connection import Connection
    from onefold.effects.once import BusyPolicy
    from onefold.model.claim import ClaimAnswer
    from onefold.runtime import Procedure, Runtime

P = ParamSpec("P")
R = TypeVar("R")

POLICIES: Final = ("raise", "skip")


class RemoteOnceOptions(ClaimOptions, total=False):
    """How `once` runs something."""

    busy: BusyPolicy
    """`raise` (the default), or `skip`: None instead of a claim."""
    wait: timedelta | None
    """How long to wait while another caller holds the key."""


def once_settings(
    connection: Connection,
    name: str,
    key: str | Callable[..., str] | None,
    options: RemoteOnceOptions,
) -> RemoteOnceSettings:
    """The options of `once`, checked."""
    checks.options(options, RemoteOnceOptions.__optional_keys__)
    rest: dict[str, Any] = dict(options)
    busy, wait = rest.pop("busy", "raise"), rest.pop("wait", None)
    claims = HttpClaims(connection)
    return RemoteOnceSettings(claims, name, key, cast("ClaimOptions", rest), busy, wait)


@dataclass(frozen=True, slots=True)
class RemoteOnceSettings:
    """The options of `once`, and where it claims."""

    claims: HttpClaims
    name: str
    key: str | Callable[..., str] | None
    options: ClaimOptions
    busy: BusyPolicy = "raise"
    wait: timedelta | None = None

    def __post_init__(self) -> None:
        if self.busy not in POLICIES:
            raise InvalidInput("busy", f"must be raise or skip, got {self.busy!r}")
        if self.wait is not None:
            span(self.wait, "wait")

    def enter(self) -> Procedure[OnceClaim | None]:
        """Claim the key; with `wait`, repeat while another caller holds it."""
        if not isinstance(self.key, str):
            raise InvalidInput("key", "must be a string if once() is used with `with`")
        pauses = waits(self.wait)
        while True:
            answer = yield from self.claims.claim(self.name, self.key, SURFACE, self.options)
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

    def leave(self, entered: OnceClaim | None, error: BaseException | None) -> Procedure[None]:
        """Settle the key; after a failure, release it.

        After an interruption its outcome is unknown, and the key stays held until its lease ends.
        """
        if entered is None or entered.claim is None:
            return
        if error is None:
            yield from self.claims.settle(entered.claim, entered.result)
        elif isinstance(error, Exception):
            try:
                yield from self.claims.release(entered.claim)
            except Exception as failure:  # noqa: BLE001 - it must not hide the error of the body
                key = entered.claim.key.key
                error.add_note(f"The key {key!r} could not be released: {failure}")

    def bound(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> RemoteOnceSettings:
        """For one call of a decorated function: the key is given, computed, or a digest."""
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

    def __init__(self, runtime: Runtime, settings: RemoteOnceSettings) -> None:
        """Made by `Client.once`; for one use at a time."""
        self._runtime = runtime
        self._settings = settings
        self._entered: OnceClaim | None = None

    def __enter__(self) -> OnceClaim | None:
        """Claim the key. None if it is busy and `busy="skip"`."""
        self._entered = self._runtime.run(self._settings.enter())
        return self._entered

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Settle, or release after a failure."""
        self._runtime.run(self._settings.leave(self._entered, error))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Decorate a function: a second call with the same key receives the first result."""
        if inspect.iscoroutinefunction(function):
            raise InvalidInput(
                "once", "of a Client is for plain functions; use that of an AsyncClient"
            )

        @wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | None:
            with RemoteOnce(self._runtime, self._settings.bound(function, args, kwargs)) as claim:
                if claim is None:
                    return None
                if claim.won:
                    claim.result = function(*args, **kwargs)
            return cast("R | None", claim.result)

        return wrapper


class AsyncRemoteOnce:
    """`once` for `async with`, and for coroutine functions."""

    def __init__(self, runtime: Runtime, settings: RemoteOnceSettings) -> None:
        """Made by `AsyncClient.once`; for one use at a time."""
        self._runtime = runtime
        self._settings = settings
        self._entered: OnceClaim | None = None

    async def __aenter__(self) -> OnceClaim | None:
        """Claim the key. None if it is busy and `busy="skip"`."""
        self._entered = await self._runtime.arun(self._settings.enter())
        return self._entered

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Settle, or release after a failure."""
        await self._runtime.arun(self._settings.leave(self._entered, error))

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R | None]]:
        """Decorate a function: a second call with the same key receives the first result."""
        if not inspect.iscoroutinefunction(function):
            raise InvalidInput(
                "once", "of an AsyncClient is for coroutine functions; use that of a Client"
            )

        @wraps(function)
        async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | None:
            settings = self._settings.bound(function, args, kwargs)
            async with AsyncRemoteOnce(self._runtime, settings) as claim:
                if claim is None:
                    return None
                if claim.won:
                    claim.result = await function(*args, **kwargs)
            return cast("R | None", claim.result)

        return wrapper
