"""`once`: run something once per key and remember its result; context manager and decorator.

with onefold.once("import", digest) as claim:
    if claim.won:
        claim.result = load(path)
return claim.result
"""

from __future__ import annotations

import inspect
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    overload,
)

from onefold.effects.claims import SURFACE, ClaimOptions
from onefold.effects.verify import ENDS_THE_RUN, Done, NotDone, ask, is_not_done, resolve
from onefold.errors import (
    Busy,
    ConflictingOptions,
    InvalidInput,
    KeyReused,
    OutcomeUnknown,
    TooOld,
    UsageError,
)
from onefold.model import checks
from onefold.model.claim import (
    JOINED_RETRY,
    Claim,
    ClaimAnswer,
    ClaimKey,
    Guarantee,
    Mismatch,
    Replay,
    Unknown,
    Wanted,
    Won,
    encode_result,
)
from onefold.model.json_text import sorted_payload
from onefold.model.timestamps import from_micros, span, to_micros
from onefold.model.unique import fingerprint
from onefold.runtime import Pause, Procedure, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from datetime import datetime, timedelta
    from types import TracebackType
    from typing import Self

    from onefold.effects.claims import ClaimBackend
    from onefold.effects.verify import Verify
    from onefold.model.outcome import ErrorRule

P = ParamSpec("P")
R = TypeVar("R")
Entered_co = TypeVar("Entered_co", bound="OnceClaim | None", covariant=True)
"""What the body receives: a claim, or None if a busy key is skipped."""

BusyPolicy: TypeAlias = Literal["raise", "skip"]


class AttemptOptions(ClaimOptions, total=False):
    """How `once` runs something."""

    verify: Verify | None
    """Finds out the result of an attempt whose outcome is unknown."""
    not_done: ErrorRule | Sequence[ErrorRule] | None
    """Exceptions that release the key: after any other one the outcome is unknown.

    None, the default outside of a job: every exception releases it.
    """
    issued_at: datetime | None
    """When the message was made: rejected if older than `retention`."""
    wait: timedelta | None
    """How long to wait while another caller holds the key."""


class OnceOptions(AttemptOptions, total=False):
    """The options of `once`, and what happens while another caller holds the key."""

    busy: BusyPolicy
    """`raise` (the default), or `skip`: None instead of a claim."""


class OnceClaim:
    """What the body of a `with` sees: won or replayed, and the result."""

    def __init__(self, answer: Won | Replay) -> None:
        """`answer` is the result of the claim."""
        self.claim: Claim | None = answer.claim if isinstance(answer, Won) else None
        self.result: Any = None if isinstance(answer, Won) else answer.result
        """Set it in the body; it is stored at the end, and returned to every later caller."""
        self.left = False

    @property
    def won(self) -> bool:
        """True if this caller has to do the work."""
        return self.claim is not None

    @property
    def replayed(self) -> bool:
        """True if the work was done before; `result` is its stored result."""
        return self.claim is None

    @property
    def fence(self) -> int | None:
        """The number of this attempt, strictly growing per key; None for a replay."""
        return None if self.claim is None else self.claim.fence

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee for the effect: exactly, at least or at most once."""
        return None if self.claim is None else self.claim.guarantee

    def has(self, key: ClaimKey) -> bool:
        """True while the body that won this key has not ended."""
        return self.claim is not None and self.claim.key == key and not self.left

    def derived(self, name: str) -> str | None:
        """A key for a third party: the same in each attempt with this key and name."""
        return None if self.claim is None else self.claim.key.derived(name)


_joined_here: ContextVar[tuple[tuple[object, OnceClaim], ...]] = ContextVar(
    "onefold_once", default=()
)
"""The keys that are claimed inside callers' transactions, with their connections. Tasks that are
started inside a body inherit this, so each entry knows whether it is over.
"""


class OnceContext(Generic[Entered_co]):
    """For `with`, for `async with`, and for functions of both kinds."""

    def __init__(
        self,
        claims: ClaimBackend,
        name: str,
        key: str | Callable[..., str] | None,
        options: OnceOptions,
    ) -> None:
        checks.options(options, OnceOptions.__optional_keys__)
        self._claims = claims
        self._name = name
        self._key = key
        self._options = options
        self._busy = options.get("busy", "raise")
        if self._busy not in ("raise", "skip"):  # a tuple: an unhashable value is rejected, too
            raise InvalidInput("busy", f"must be raise or skip, got {self._busy!r}")
        self._wait = options.get("wait")
        if self._wait is not None:
            span(self._wait, "wait")
        self._verify = options.get("verify")
        if self._verify is not None and not callable(self._verify):
            raise InvalidInput("verify", f"must be a function, got {self._verify!r}")
        self._not_done = claims.not_done(options.get("not_done"), options.get("takeover"))
        """Exceptions that mean that nothing has happened; None if all of them do."""
        self._wanted: Wanted | None = None
        self._given_key = ""
        """The key as the caller gave it; the stored key may have more parts."""
        self._entered: OnceClaim | None = None
        self._in_use = threading.Lock()
        """Locked from the entry to the exit, also for a skipped entry: the state of this object
        belongs to one body.
        """

    @contextmanager
    def _entering(self) -> Generator[None]:
        """Reserve this object for one body; an entry that fails releases it."""
        if not self._in_use.acquire(blocking=False):
            raise UsageError(
                "This once() is in use: another body that it was entered for has not ended. Make a"
                " new once() for each use."
            )
        try:
            yield
        except BaseException:
            self._in_use.release()
            raise

    @contextmanager
    def _leaving(self) -> Generator[None]:
        try:
            yield
        finally:
            if self._in_use.locked():
                self._in_use.release()

    def _claim(self, key: str) -> Procedure[ClaimAnswer]:
        """Claim the key; if `wait` is set, wait while another caller holds it."""
        self._given_key = key
        self._refuse_too_old(key)
        pauses = waits(self._wait)
        while True:
            self._wanted = self._claims.want(SURFACE, self._name, key, self._options)
            if self._is_at_work_here(self._wanted.key):
                # The database would not notice a conflict: a transaction does not wait for itself.
                return Busy(key=key, retry_after=JOINED_RETRY)
            answer: ClaimAnswer = yield from self._claims.claim(self._wanted)
            if not isinstance(answer, Busy) or (pause := next(pauses, None)) is None:
                return answer
            yield Pause(pause)

    def _refuse_too_old(self, key: str) -> None:
        """Past `retention` the ledger cannot tell a late duplicate from a new attempt."""
        issued_at, retention = self._options.get("issued_at"), self._options.get("retention")
        if issued_at is None:
            return
        if retention is None:
            raise ConflictingOptions("issued_at", "needs a retention to be compared with")
        horizon = self._claims.now() - span(retention, "retention")
        if to_micros(issued_at, "issued_at") <= horizon:
            raise TooOld(key=key, issued_at=issued_at, horizon=from_micros(horizon))

    def _entered_with(self, answer: ClaimAnswer) -> OnceClaim | None:
        match answer:
            case Won() | Replay():
                self._entered = OnceClaim(answer)
                borrowed = self._claims.borrowed
                if borrowed is not None and self._entered.won:
                    here = (borrowed.connection, self._entered)
                    _joined_here.set((*_joined_here.get(), here))
                return self._entered
            case Busy():
                if self._busy == "skip":
                    return None
                raise answer
            case Mismatch(key):
                raise KeyReused(key=key)
            case Unknown(key, _, since):
                verifiable = self._verify is not None
                raise OutcomeUnknown(key=key, since=since, verifiable=verifiable)

    def _verified(self, unknown: Unknown, found: Done | NotDone) -> Procedure[ClaimAnswer]:
        """Act on the result of `verify`, unless another attempt has acted meanwhile."""
        assert self._wanted is not None
        text = encode_result(found.result if isinstance(found, Done) else None)
        claim = yield from resolve(self._claims, self._wanted, unknown, found, result=text)
        return (yield from self._claim(self._given_key)) if claim is None else Won(claim)

    def _is_doubtful(self, error: Exception) -> bool:
        """True if an exception of the body leaves open whether the effect has happened."""
        rules, entered = self._not_done, self._entered
        if rules is None or entered is None:
            return False
        return entered.won and not is_not_done(error, rules)

    def _doubted(self, error: Exception, found: Done | NotDone | None) -> Procedure[bool]:
        """Act on the result of `verify` after an exception; True if the work was done."""
        entered = self._entered
        assert entered is not None
        match found:
            case Done(result):
                entered.result = result
                yield from self._leave(None)
                return True
            case NotDone():
                yield from self._leave(error)
                if isinstance(error, OutcomeUnknown):
                    error.verifiable = True
                return False
            case None:
                yield from self._abandon(error)
                if isinstance(error, ENDS_THE_RUN):
                    return False
                raise OutcomeUnknown(key=self._given_key, verifiable=self._verify is not None)

    def _abandon(self, error: Exception) -> Procedure[None]:
        """Mark the outcome as unknown, at once. `error` is the one that the caller receives."""
        entered, self._entered = self._entered, None
        assert entered is not None
        assert entered.claim is not None
        claim = entered.claim
        try:
            yield from self._claims.abandon(claim)
        except Exception as failure:  # noqa: BLE001 - it must not hide the error of the body
            error.add_note(f"The key {claim.key.key!r} is unknown when its lease ends: {failure}")

    def _leave(self, error: BaseException | None) -> Procedure[None]:
        """Settle after success; release after a failure."""
        entered, self._entered = self._entered, None
        if entered is None or entered.claim is None:
            return
        claim = entered.claim
        entered.left = True
        _joined_here.set(tuple(here for here in _joined_here.get() if not here[1].left))
        if error is None:
            text = yield from self._encoded(claim, entered.result)
            yield from self._claims.settle(claim, text)
        elif isinstance(error, Exception) or self._joined:
            yield from self._give_back(claim, error)
        # Interrupted (a cancelled task, ctrl-C): it is unknown how far the body came, so the lease
        # ends by time, and the declared takeover decides.

    def _encoded(self, claim: Claim, result: Any) -> Procedure[str]:
        """The text of a result. If it cannot be stored, the error explains the state of the key."""
        try:
            return encode_result(result)
        except InvalidInput as error:
            if self._joined:
                # No lease would ever end if the caller committed in spite of the error.
                yield from self._give_back(claim, error)
            else:
                # The effect has happened, so the key must not be released for another run.
                error.add_note(
                    f"The key {claim.key.key!r} stays unsettled until its lease ends; then its"
                    " takeover decides what the next caller receives."
                )
            raise

    def _is_at_work_here(self, key: ClaimKey) -> bool:
        """True inside the body of another `once` with this key, in the same transaction."""
        borrowed = self._claims.borrowed
        return borrowed is not None and any(
            connection is borrowed.connection and entered.has(key)
            for connection, entered in _joined_here.get()
        )

    def _give_back(self, claim: Claim, error: BaseException) -> Procedure[None]:
        """Release after a failure. An error of the release does not hide that failure."""
        borrowed = self._claims.borrowed
        if borrowed is not None and borrowed.failed():
            return
        try:
            yield from self._claims.release(claim)
        except Exception as failure:  # noqa: BLE001 - it must not hide the error of the body
            error.add_note(f"The key {claim.key.key!r} could not be given back: {failure}")

    @property
    def _joined(self) -> bool:
        return self._claims.borrowed is not None

    def _bound_key(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        """The key of a decorated call: given, computed, or digested from its bound arguments."""
        key = self._key
        if isinstance(key, str):
            return key
        if key is not None:
            if not callable(key):
                raise InvalidInput("key", f"must be a string or a function, got {key!r}")
            return key(*args, **kwargs)
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            text = sorted_payload(dict(bound.arguments))
        except InvalidInput as error:
            raise InvalidInput("key", f"cannot be made of the arguments: {error.reason}") from error
        return fingerprint(f"{function.__module__}.{function.__qualname__}", text)

    def _for(self, key: str) -> Self:
        return type(self)(self._claims, self._name, key, self._options)

    def __enter__(self) -> Entered_co:
        with self._entering():
            entered: Entered_co = self._claims.runtime.run(self._enter())
        return entered

    async def __aenter__(self) -> Entered_co:
        with self._entering():
            return await self._claims.runtime.arun(self._enter())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Settle; after a failure release, or verify. True if the work was done in spite of it."""
        with self._leaving():
            return self._claims.runtime.run(self._exit(error))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Settle; after a failure release, or verify. True if the work was done in spite of it."""
        with self._leaving():
            return await self._claims.runtime.arun(self._exit(error))

    def _enter(self) -> Procedure[Any]:
        """Claim; while the outcome is unknown, call `verify`."""
        if not isinstance(self._key, str):
            raise InvalidInput("key", "must be a string where once() is used with `with`")
        answer, verify = (yield from self._claim(self._key)), self._verify
        while isinstance(answer, Unknown) and verify is not None:
            found = yield from ask(verify, self._given_key, label=self._given_key)
            if found is None:
                break
            answer = yield from self._verified(answer, found)
        return self._entered_with(answer)

    def _exit(self, error: BaseException | None) -> Procedure[bool | None]:
        if not isinstance(error, Exception) or not self._is_doubtful(error):
            yield from self._leave(error)
            return None
        verify, found = self._verify, None
        try:
            if verify is not None and not isinstance(error, ENDS_THE_RUN):
                found = yield from ask(verify, self._given_key, label=self._given_key)
        except Exception as failure:
            yield from self._abandon(failure)
            raise
        return (yield from self._doubted(error, found))

    @overload  # a coroutine function matches this one, and never gets None
    def __call__(  # type: ignore[overload-overlap]
        self: OnceContext[OnceClaim], function: Callable[P, R]
    ) -> Callable[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Callable[P, R | None]: ...
    def __call__(self, function: Callable[P, Any]) -> Callable[P, Any]:
        """Decorate: the second call with the same key gets the result of the first."""
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with self._for(self._bound_key(function, args, kwargs)) as claim:
                    if claim is None:
                        return None
                    if claim.won:
                        claim.result = await function(*args, **kwargs)
                return claim.result

            return awaited

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> Any:
            with self._for(self._bound_key(function, args, kwargs)) as claim:
                if claim is None:
                    return None
                if claim.won:
                    claim.result = function(*args, **kwargs)
            return claim.result

        return called
