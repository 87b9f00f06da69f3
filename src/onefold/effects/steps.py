"""`run.step` and `run.transact`: work that is done once per job, with a stored result.

A write begins a step, and another one settles it; a crash in between leaves it begun. A
transaction of `run.transact` contains the effect and the record, so a crash leaves both or none.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypedDict, TypeVar, cast, overload

from onefold.databases.handler_transaction import abegin, begin
from onefold.effects.run_transaction import defer_unused
from onefold.effects.step_codec import (
    decoded,
    encoded,
    failure_of,
    fingerprint_of,
    is_awaited,
    raised_again,
)
from onefold.effects.step_log import StepRequest
from onefold.errors import (
    Busy,
    InvalidInput,
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
    UsageError,
)
from onefold.model import checks
from onefold.model.outcome import Outcome, checked_rules
from onefold.model.retry import DEFAULT_BACKOFF, Backoff, Exponential, Fixed
from onefold.model.verify import ENDS_THE_RUN, Done, NotDone, asking, check_doubt, is_not_done
from onefold.runtime import Call, Pause, Procedure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from typing import Unpack

    from onefold.databases.handler_transaction import HandlerTransaction
    from onefold.effects.step_log import StepLog
    from onefold.model.claim import Takeover
    from onefold.model.outcome import ErrorRule
    from onefold.model.step import StepName, StepRow
    from onefold.model.verify import Verify, VerifyResult

P = ParamSpec("P")
R = TypeVar("R")

# They decide how the run ends, and not the step: no attempt of the step is over.
_PASSING = (Outcome, Busy, KeyReused, LeaseLost, OutcomeUnknown, UsageError)


class StepOptions(TypedDict, total=False):
    """How a step is done."""

    key: str | None
    """Distinguishes this step from others of its name, if their order depends on the data."""
    attempts: int | None
    """How often it is tried, in all attempts of the job, before its failure is final."""
    backoff: Backoff | None
    """How long it waits between two tries; exponential, from 1 s, by default."""
    unsafe: bool
    """It must not be done twice: after a crash or an exception its outcome is unknown, and it is
    not repeated.
    """
    verify: Verify | None
    """Finds out the outcome of an unknown attempt, by its key: Done, NotDone or None."""
    not_done: ErrorRule | Sequence[ErrorRule]
    """Exceptions of an unsafe step that mean that nothing has happened."""
    on: object
    """Where `transact` begins its transaction; Onefold's own connections by default."""


_inside: ContextVar[tuple[StepLog, StepName, bool] | None] = ContextVar(
    "onefold_step", default=None
)
"""The step whose function is running here, and whether it may be done again."""


def step_inside(ledger: StepLog) -> StepName | None:
    """The step of this run whose function is running here."""
    here = _inside.get()
    return here[1] if here is not None and here[0] is ledger else None


class Stepping(ABC):
    """An object that runs steps: a run, or a run with options."""

    _options: StepOptions

    @property
    @abstractmethod
    def _ledger(self) -> StepLog:
        """The steps of the job."""

    @abstractmethod
    def check(self) -> None:
        """Raise if the run must not continue."""

    def using(self, **options: Unpack[StepOptions]) -> Steps:
        """The same with other options: `run.using(unsafe=True, verify=look_up).step(…)`."""
        return Steps(self._ledger, self.check, {**self._options, **options})

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do something once per job: its result is stored, and a rerun receives it.

        It returns the stored result, so the first run and a rerun receive the same value. After a
        crash or an exception the step is done again, unless it is `unsafe`.
        """
        self.check()
        if self._is_inside():
            return function(*args, **kwargs)
        attempt = self._attempt(name, function, args, kwargs)
        call = partial(function, *args, **kwargs)
        return cast("R", self._ledger.context.runtime.run(self._do(attempt, call, _verified)))

    def _is_inside(self) -> bool:
        """True if a step is running, and this one is a part of it."""
        here = _inside.get()
        if here is None or here[0] is not self._ledger:
            return False
        _, outer, repeats = here
        if repeats and self._options.get("unsafe"):
            raise UsageError(
                f"The step {outer.label!r} is running, and may be done again, with the unsafe step"
                " inside of it. Call the unsafe step outside of it, or make both one unsafe step."
            )
        return True

    def _do(
        self, attempt: StepAttempt, call: Callable[[], Any], verified: Callable[..., Any]
    ) -> Procedure[Any]:
        """Begin the step, call its function, store the result; retry or verify after an error."""
        with attempt.or_given_up():
            yield from attempt.look()
            if attempt.is_unknown():
                yield from attempt.find_out(verified)
            yield from attempt.begin()
            while not attempt.is_over():
                try:
                    with attempt.inside():
                        value = yield Call(call)
                except Exception as error:
                    if attempt.may_have_happened(error):
                        yield from attempt.doubted(error)
                        self.check()
                        yield from attempt.find_out(verified)
                    if not (attempt.is_over() or (yield from attempt.failed(error))):
                        raise
                    self.check()
                else:
                    yield from attempt.done(value)
        return attempt.answer()

    @overload
    async def astep(
        self,
        name: str,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    async def astep(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    async def astep(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """`step`, awaited: coroutine functions here, plain ones in a thread."""
        self.check()
        if self._is_inside():
            return await _called(function, args, kwargs)
        attempt = self._attempt(name, function, args, kwargs)
        call = partial(_called, function, args, kwargs)
        return await self._ledger.context.runtime.arun(self._do(attempt, call, _averified))

    def transact(
        self,
        name: str,
        function: Callable[Concatenate[Any, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """A step whose rows and record are one commit: exactly once, even after a crash.

        `function` receives the connection first, and must not commit. A job may have several such
        steps; it continues after each.
        """
        attempt = self._transaction(name, function, args, kwargs)
        context = self._ledger.context
        context.runtime.run(attempt.look())
        attempt.refuse_unknown()
        if attempt.is_over():
            return cast("R", attempt.answer())
        on, row = self._options.get("on"), None
        begun: HandlerTransaction | None = None
        with attempt.or_given_up():
            try:
                with begin(on, context.database) as begun:
                    with attempt.inside(undone=True):
                        value = function(begun.connection, *args, **kwargs)
                    row = begun.execute(attempt.recorded(value))
            except Exception as error:
                if row is None or not context.runtime.run(self._ledger.has_stored(row)):
                    defer_unused(begun, error)
                    raise
            attempt.adopt(row)
        return cast("R", attempt.answer())

    async def atransact(
        self,
        name: str,
        function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """`transact`, awaited."""
        attempt = self._transaction(name, function, args, kwargs)
        context = self._ledger.context
        await context.runtime.arun(attempt.look())
        attempt.refuse_unknown()
        if attempt.is_over():
            return cast("R", attempt.answer())
        on, row = self._options.get("on"), None
        begun: HandlerTransaction | None = None
        with attempt.or_given_up():
            try:
                async with await abegin(on, context.database) as begun:
                    with attempt.inside(undone=True):
                        value = await function(begun.connection, *args, **kwargs)
                    row = await begun.aexecute(attempt.recorded(value))
            except Exception as error:
                if row is None or not await context.runtime.arun(self._ledger.has_stored(row)):
                    defer_unused(begun, error)
                    raise
            attempt.adopt(row)
        return cast("R", attempt.answer())

    def _transaction(
        self, name: str, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> StepAttempt:
        self.check()
        if (outer := step_inside(self._ledger)) is not None:
            raise UsageError(
                f"The step {outer.label!r} is running, and a step inside of it is a part of it: the"
                " transaction would be committed apart. Call transact() outside of the step."
            )
        return self._attempt(name, function, args, kwargs, passed_before=1)

    def _attempt(
        self,
        name: str,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        *,
        passed_before: int = 0,
    ) -> StepAttempt:
        digest = fingerprint_of(name, function, args, kwargs, passed_before=passed_before)
        found = self._ledger.name(name, self._options.get("key"), digest)
        takeover: Takeover = "refuse" if self._options.get("unsafe") else "rerun"
        return StepAttempt(
            self._ledger, self._options, function, StepRequest(found, digest, takeover)
        )


class Steps(Stepping):
    """Runs the steps of a run with given options."""

    def __init__(self, ledger: StepLog, check: Callable[[], None], options: StepOptions) -> None:
        """`check` raises if the run must not continue."""
        checks.options(options, StepOptions.__optional_keys__)
        _check_attempts(options.get("attempts"), options.get("backoff"))
        check_doubt(options)
        self._options = options
        self._of_the_run = ledger
        self._check = check

    @property
    def _ledger(self) -> StepLog:
        return self._of_the_run

    def check(self) -> None:
        """Raise `LeaseLost` if the job is lost."""
        self._check()


class StepAttempt:
    """One requested step, from the first look at its stored form to its end."""

    def __init__(
        self,
        ledger: StepLog,
        options: StepOptions,
        function: Callable[..., Any],
        asked: StepRequest,
    ) -> None:
        """Nothing is read yet."""
        self.name: StepName = asked.name
        self._ledger = ledger
        self._options = options
        self._function = function
        self._asked = asked
        self._row: StepRow | None = None
        self._is_begun = False

    def is_over(self) -> bool:
        """True if the step has ended, now or before."""
        return self._row is not None and self._row.is_settled

    def is_unknown(self) -> bool:
        """True if its last try vanished or gave up, and it must not be repeated."""
        row = self._row
        return row is not None and row.must_not_rerun and self._ledger.is_abandoned(row)

    def refuse_unknown(self) -> None:
        """Raise if the outcome of the step is unknown."""
        if self.is_unknown():
            raise OutcomeUnknown(key=self.name.label)

    @contextmanager
    def inside(self, *, undone: bool = False) -> Generator[None]:
        """Steps that are requested here are a part of this one; `undone` if it rolls back."""
        repeats = undone or self._asked.takeover != "refuse"
        token = _inside.set((self._ledger, self.name, repeats))
        try:
            yield
        finally:
            _inside.reset(token)

    @contextmanager
    def or_given_up(self) -> Generator[None]:
        """If an error ends this before the step is over, the handler may request the step again."""
        try:
            yield
        except BaseException:
            if not self.is_over():
                self._ledger.give_up(self._asked, self._row if self._is_begun else None)
            raise

    def look(self) -> Procedure[None]:
        """Read the stored step."""
        self._row = yield from self._ledger.find(self._asked)

    def may_have_happened(self, error: Exception) -> bool:
        """True if the step must not be repeated after this exception of its function."""
        rules = checked_rules(self._options.get("not_done", ()), "not_done")
        return self._asked.takeover == "refuse" and not is_not_done(error, rules)

    def doubted(self, error: Exception) -> Procedure[None]:
        """Store that its outcome is unknown."""
        yield from self._give_up(error, keeps=True)
        if isinstance(error, ENDS_THE_RUN):
            raise error
        if isinstance(error, OutcomeUnknown):
            # If verify finds that it did not happen, this error ends the run.
            error.verifiable = True

    def find_out(self, verified: Callable[..., Any]) -> Procedure[None]:
        """Call `verify`, and act on its result; raise if it returns None."""
        verify = self._options.get("verify")
        if verify is None:
            raise OutcomeUnknown(key=self.name.label)
        key = self._ledger.book.third_party_key(self.name)
        verdict = yield Call(verified, (verify, key, self.name.label))
        yield from self.verified(verdict)

    def verified(self, verdict: object) -> Procedure[None]:
        """Act on the result of `verify`: take the step as done, or begin anew."""
        assert self._row is not None
        match verdict:
            case Done(result):
                text = encoded(result)
                yield from self.begin()
                yield from self._settle(text)
            case NotDone():
                yield from self.begin()
            case None:
                raise OutcomeUnknown(key=self.name.label, verifiable=True)
            case _:
                raise InvalidInput("verify", f"must answer Done, NotDone or None, got {verdict!r}")

    def begin(self) -> Procedure[None]:
        """Begin, unless the step is over, or was begun after `verify`."""
        if not self._is_begun and not self.is_over():
            self._row = yield from self._ledger.begin(self._asked, self._row)
            self._is_begun = True

    def done(self, value: Any) -> Procedure[None]:
        """Store the result; a value that cannot be stored raises before the step counts as done."""
        assert self._row is not None
        try:
            text = encoded(value)
        except InvalidInput as error:
            error.add_note(f"The step {self.name.label!r} was done, but its result is not stored.")
            yield from self._give_up(error, keeps=self._asked.takeover == "refuse")
            raise
        yield from self._settle(text)

    def _settle(self, text: str) -> Procedure[None]:
        assert self._row is not None
        if not self._row.is_settled:
            self._row = yield from self._ledger.settle(self._asked, self._row, value=text)

    def failed(self, error: Exception) -> Procedure[bool]:
        """Store the failure; True if the step is tried again here, after a pause."""
        assert self._row is not None
        most, tried = self._options.get("attempts"), self._row.notes.attempts
        if most is None or isinstance(error, _PASSING):
            yield from self._give_up(error)
            return False
        failure = failure_of(error)
        if tried >= most:
            self._row = yield from self._ledger.settle(self._asked, self._row, failure=failure)
            return False
        self._row = yield from self._ledger.again(self._asked, self._row, failure)
        backoff = self._options.get("backoff") or DEFAULT_BACKOFF
        yield Pause(backoff.wait(tried).total_seconds())
        return True

    def _give_up(self, error: Exception, *, keeps: bool = False) -> Procedure[None]:
        """Release the step for another attempt; or keep it if its outcome is unknown."""
        assert self._row is not None
        say = self._ledger.note if keeps else self._ledger.release
        try:
            self._row = yield from say(self._asked, self._row, failure_of(error))
        except Exception as other:  # noqa: BLE001 - it must not hide the error of the step
            error.add_note(f"The step {self.name.label!r} could not be given back: {other}")

    def recorded(self, value: Any) -> Any:
        """The operation that stores the step in the transaction of its effect."""
        return self._ledger.record(self._asked, self._row, encoded(value))

    def adopt(self, row: StepRow) -> None:
        """The transaction was committed with the record of this step."""
        self._ledger.adopt(row)
        self._row = row

    def answer(self) -> Any:
        """Return the stored result, or raise the stored failure."""
        assert self._row is not None
        notes = self._row.notes
        if notes.failure is not None:
            raise raised_again(notes.failure, self.name.label)
        return decoded(notes.value_text, self._function)


def _verified(verify: Verify, key: str, label: str) -> VerifyResult:
    with asking(label):
        verdict = verify(key)
    if inspect.isawaitable(verdict):
        raise InvalidInput("verify", "must be awaited here; use it with astep")
    return verdict


async def _averified(verify: Verify, key: str, label: str) -> VerifyResult:
    with asking(label):
        verdict: VerifyResult = await _called(verify, (key,), {})
    return verdict


async def _called(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if is_awaited(function):
        return await function(*args, **kwargs)
    value = await asyncio.to_thread(function, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def _check_attempts(attempts: object, backoff: object) -> None:
    if attempts is not None and (type(attempts) is not int or attempts < 1):
        raise InvalidInput("attempts", f"must be a whole number from 1 on, got {attempts!r}")
    if backoff is not None and not isinstance(backoff, Exponential | Fixed):
        raise InvalidInput("backoff", f"must be an Exponential or a Fixed, got {backoff!r}")
    if backoff is not None and attempts is None:
        raise InvalidInput("backoff", "needs attempts: without them a step is not tried again here")
