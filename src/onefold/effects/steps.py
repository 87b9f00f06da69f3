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

from onefold.effects.run_transaction import RecordedTransaction
from onefold.effects.step_codec import decoded, encoded, failure_of, fingerprint_of, raised_again
from onefold.effects.step_store import DatabaseSteps, StepRequest
from onefold.effects.verify import ENDS_THE_RUN, Done, ask, check_doubt, is_not_done
from onefold.errors import Busy, InvalidInput, KeyReused, LeaseLost, OutcomeUnknown, UsageError
from onefold.model import checks
from onefold.model.claim import Holding
from onefold.model.outcome import Outcome, checked_rules
from onefold.model.retry import DEFAULT_BACKOFF, Backoff, Exponential, Fixed
from onefold.model.step import step_name
from onefold.runtime import Call, Pause, Procedure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from typing import Unpack

    from onefold.app.context import Context
    from onefold.databases import Build
    from onefold.effects.step_log import StepLog
    from onefold.effects.verify import Verify
    from onefold.model.outcome import ErrorRule
    from onefold.model.step import StepName, StepRow
    from onefold.operations.statement import Operation, Sql
    from onefold.operations.steps import StepWrite

P = ParamSpec("P")
R = TypeVar("R")

# They decide how the run ends, and not the step: no attempt of the step is over.
_PASSING = (Outcome, Busy, KeyReused, LeaseLost, OutcomeUnknown, UsageError)


class RemoteStepOptions(TypedDict, total=False):
    """How a step is done, also over HTTP."""

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


class StepOptions(RemoteStepOptions, total=False):
    """How a step is done."""

    on: object
    """Where `transact` begins its transaction; Onefold's own connections by default."""


_inside: ContextVar[tuple[StepLog, StepName, bool] | None] = ContextVar(
    "onefold_step", default=None
)
"""The step whose function is running here, and whether it may be done again."""


def step_inside(log: StepLog) -> StepName | None:
    """The step of this run whose function is running here."""
    here = _inside.get()
    return here[1] if here is not None and here[0] is log else None


def step_key(log: StepLog, name: str | None, key: str | None) -> str:
    """The key of a step for a third party; without a name, of the step that is running here."""
    step = step_inside(log)
    if name is not None:
        step = step_name(name, key=key, occurrence=1, generation=log.backend.generation)
    if step is None:
        raise UsageError("key() without a name is for the function of a step.")
    return log.backend.third_party_key(step)


class StepRunner(ABC):
    """An object that runs steps, on any backend."""

    _options: StepOptions

    @property
    @abstractmethod
    def _log(self) -> StepLog:
        """The steps of the job."""

    @abstractmethod
    def check(self) -> None:
        """Raise if the run must not continue."""

    def _step(
        self, name: str, function: Callable[..., Any], args: Any, kwargs: Any, *, awaited: bool
    ) -> Procedure[Any]:
        """Begin the step, call its function, store the result; retry or verify after an error."""
        self.check()
        call = partial(_acalled if awaited else _called, function, args, kwargs)
        if self._is_inside():
            return (yield Call(call))
        attempt = self._attempt(name, function, args, kwargs)
        with attempt.or_given_up():
            yield from attempt.begin()
            while not attempt.is_over():
                try:
                    with attempt.inside():
                        value = yield Call(call)
                except Exception as error:
                    if attempt.may_have_happened(error):
                        yield from attempt.doubted(error)
                        self.check()
                        yield from attempt.find_out()
                    if not (attempt.is_over() or (yield from attempt.failed(error))):
                        raise
                    self.check()
                else:
                    yield from attempt.done(value)
        return attempt.answer()

    def _is_inside(self) -> bool:
        """True if a step is running, and this one is a part of it."""
        here = _inside.get()
        if here is None or here[0] is not self._log:
            return False
        _, outer, repeats = here
        if repeats and self._options.get("unsafe"):
            raise UsageError(
                f"The step {outer.label!r} is running, and may be done again, with the unsafe step"
                " inside of it. Call the unsafe step outside of it, or make both one unsafe step."
            )
        return True

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
        found = self._log.name(name, self._options.get("key"), digest)
        request = StepRequest(found, digest, "refuse" if self._options.get("unsafe") else "rerun")
        return StepAttempt(self._log, self._options, function, request)


class Stepping(StepRunner):
    """An object that runs steps on the database: a run, or a run with options."""

    _context: Context

    def using(self, **options: Unpack[StepOptions]) -> Steps:
        """The same with other options: `run.using(unsafe=True, verify=look_up).step(…)`."""
        return Steps(self._context, self._log, self.check, {**self._options, **options})

    def key(self, name: str | None = None, key: str | None = None) -> str:
        """A key for a third party: the same in each attempt.

        `run.key("charge")` is the key of the first step of this name, `run.key("charge", order)`
        of the one with that key. Without a name, inside of a step's function, it is the key of
        that step.
        """
        return step_key(self._log, name, key)

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do something once per job: its result is stored, and a rerun receives it.

        It returns the stored result, so the first run and a rerun receive the same value. After a
        crash or an exception the step is done again, unless it is `unsafe`.
        """
        step = self._step(name, function, args, kwargs, awaited=False)
        return cast("R", self._context.runtime.run(step))

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
        step = self._step(name, function, args, kwargs, awaited=True)
        return await self._context.runtime.arun(step)

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
        attempt = self._transacted(name, function, args, kwargs)
        with attempt.or_given_up():
            self._context.runtime.run(attempt.look())
            if not attempt.is_over():
                transaction = StepTransaction(self._context, self._options.get("on"), attempt)
                with transaction as connection, attempt.inside(undone=True):
                    transaction.result = function(connection, *args, **kwargs)
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
        attempt = self._transacted(name, function, args, kwargs)
        with attempt.or_given_up():
            await self._context.runtime.arun(attempt.look())
            if not attempt.is_over():
                transaction = StepTransaction(self._context, self._options.get("on"), attempt)
                async with transaction as connection:
                    with attempt.inside(undone=True):
                        transaction.result = await function(connection, *args, **kwargs)
        return cast("R", attempt.answer())

    def _transacted(
        self, name: str, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> StepAttempt:
        self.check()
        if (outer := step_inside(self._log)) is not None:
            raise UsageError(
                f"The step {outer.label!r} is running, and a step inside of it is a part of it: the"
                " transaction would be committed apart. Call transact() outside of the step."
            )
        return self._attempt(name, function, args, kwargs, passed_before=1)


class Steps(Stepping):
    """Runs the steps of a run with given options."""

    def __init__(
        self, context: Context, log: StepLog, check: Callable[[], None], options: StepOptions
    ) -> None:
        """`check` raises if the run must not continue."""
        check_step_options(options, StepOptions.__optional_keys__)
        self._context = context
        self._run_log = log
        self._check = check
        self._options = options

    @property
    def _log(self) -> StepLog:
        return self._run_log

    def check(self) -> None:
        """Raise if the run must not continue."""
        self._check()


class StepAttempt:
    """One requested step, from the first look at its stored form to its end."""

    def __init__(
        self,
        log: StepLog,
        options: StepOptions,
        function: Callable[..., Any],
        request: StepRequest,
    ) -> None:
        self.request = request
        self.log = log
        self.row: StepRow | None = None
        self._label = request.name.label
        self._options = options
        self._function = function
        self._is_begun = False

    def is_over(self) -> bool:
        """True if the step has ended, now or before."""
        return self.row is not None and self.row.is_settled

    @contextmanager
    def inside(self, *, undone: bool = False) -> Generator[None]:
        """Steps that are requested here are a part of this one; `undone` if it rolls back."""
        token = _inside.set((self.log, self.request.name, undone or not self.request.is_unsafe))
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
                self.log.give_up(self.request, self.row if self._is_begun else None)
            raise

    def look(self) -> Procedure[None]:
        """Read the stored step; `OutcomeUnknown` if it must not be repeated."""
        row = self.row = yield from self.log.find(self.request)
        if row is not None and row.must_not_rerun and self.log.is_abandoned(row):
            raise OutcomeUnknown(key=self._label)

    def begin(self) -> Procedure[None]:
        """Begin it, unless it is over; if its outcome is unknown, find it out."""
        self.row = yield from self.log.find(self.request)
        if self.is_over():
            return
        is_unknown = False
        try:
            yield from self._begin(verified=False)
        except OutcomeUnknown:
            is_unknown = True  # not here: it would be the cause of the same error
        if is_unknown:
            yield from self.find_out()

    def _begin(self, *, verified: bool) -> Procedure[None]:
        self.row = yield from self.log.begin(self.request, self.row, verified=verified)
        self._is_begun = True

    def may_have_happened(self, error: Exception) -> bool:
        """True if the step must not be repeated after this exception of its function."""
        rules = checked_rules(self._options.get("not_done", ()), "not_done")
        return self.request.is_unsafe and not is_not_done(error, rules)

    def doubted(self, error: Exception) -> Procedure[None]:
        """Store that its outcome is unknown."""
        yield from self._give_up(error, Holding.HELD)
        if isinstance(error, ENDS_THE_RUN):
            raise error
        if isinstance(error, OutcomeUnknown):
            # If verify finds that it did not happen, this error ends the run.
            error.verifiable = True

    def find_out(self) -> Procedure[None]:
        """Call `verify`: take the step as done, or begin anew; raise if it returns None."""
        verify = self._options.get("verify")
        if verify is None:
            raise OutcomeUnknown(key=self._label)
        if self._is_begun or self.log.backend.compares:
            value = yield from self._verify(verify)
        else:
            # First, so that no other try begins meanwhile: `verify` does not know of it.
            yield from self._begin(verified=True)
            if self.is_over():
                return
            try:
                value = yield from self._verify(verify)
            except Exception as error:
                yield from self._give_up(error, Holding.HELD)
                raise
        if not self._is_begun:
            yield from self._begin(verified=True)
        if value is not None:
            yield from self._finish(value)

    def _verify(self, verify: Verify) -> Procedure[str | None]:
        """The result of what was done, which is JSON text; None if it was not done."""
        key = self.log.backend.third_party_key(self.request.name)
        found = yield from ask(verify, key, label=self._label)
        if found is None:
            raise OutcomeUnknown(key=self._label, verifiable=True)
        return encoded(found.result) if isinstance(found, Done) else None

    def done(self, result: Any) -> Procedure[None]:
        """Store the result; a value that cannot be stored raises before the step counts as done."""
        try:
            value = encoded(result)
        except InvalidInput as error:
            error.add_note(f"The step {self._label!r} was done, but its result is not stored.")
            yield from self._give_up(
                error, Holding.HELD if self.request.is_unsafe else Holding.FREE
            )
            raise
        yield from self._finish(value)

    def _finish(self, value: str) -> Procedure[None]:
        assert self.row is not None
        if not self.row.is_settled:
            self.row = yield from self.log.finish(self.request, self.row, value)

    def failed(self, error: Exception) -> Procedure[bool]:
        """Store the failure; True if the step is begun again here, after a pause."""
        assert self.row is not None
        most, tried = self._options.get("attempts"), self.row.notes.attempts
        if most is None or isinstance(error, _PASSING):
            yield from self._give_up(error, Holding.FREE)
            return False
        state = Holding.SETTLED if tried >= most else Holding.FREE
        self.row = yield from self.log.fail(self.request, self.row, failure_of(error), state)
        if self.is_over():
            return False
        self._is_begun = False
        backoff = self._options.get("backoff") or DEFAULT_BACKOFF
        yield Pause(backoff.wait(tried).total_seconds())
        yield from self._begin(verified=False)
        return True

    def _give_up(self, error: Exception, state: Holding) -> Procedure[None]:
        """Release the step for another attempt; or keep it if its outcome is unknown."""
        assert self.row is not None
        try:
            self.row = yield from self.log.fail(self.request, self.row, failure_of(error), state)
        except Exception as other:  # noqa: BLE001 - it must not hide the error of the step
            error.add_note(f"The step {self._label!r} could not be released: {other}")

    def answer(self) -> Any:
        """Return the stored result, or raise the stored failure."""
        assert self.row is not None
        notes = self.row.notes
        if notes.failure is not None:
            raise raised_again(notes.failure, self._label)
        return decoded(notes.value_text, self._function)


class StepTransaction(RecordedTransaction):
    """A transaction whose last statement stores the step that it is."""

    def __init__(self, context: Context, target: object, attempt: StepAttempt) -> None:
        super().__init__(context, target)
        self.result: Any = None
        self._attempt = attempt
        self._row: StepRow | None = None
        self._wanted: StepWrite | None = None

    @property
    def _backend(self) -> DatabaseSteps:
        backend = self._attempt.log.backend
        assert isinstance(backend, DatabaseSteps)
        return backend

    def _record(self) -> Build[None]:
        attempt = self._attempt
        self._wanted = self._backend.record(attempt.request, attempt.row, encoded(self.result))
        return self._write

    def _write(self, sql: Sql) -> Operation[None]:
        assert self._wanted is not None
        try:
            self._row = yield from self._backend.write(sql, self._wanted)
        except LeaseLost:
            self._attempt.log.lose()
            raise
        if self._row.owner != self._wanted.owner:
            label = self._attempt.request.name.label
            raise LeaseLost(f"the step {label!r}", fence=self._backend.fence)

    def _is_recorded(self, sql: Sql) -> Operation[bool]:
        assert self._wanted is not None
        return self._backend.has_stored(sql, self._wanted)

    def _ended(self, *, committed: bool) -> None:
        if committed and self._row is not None:
            self._attempt.row = self._attempt.log.adopt(self._row)


def _called(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


async def _acalled(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
        return await function(*args, **kwargs)
    value = await asyncio.to_thread(function, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def check_step_options(options: StepOptions, known: frozenset[str]) -> None:
    """Check the options of a step."""
    checks.options(options, known)
    check_doubt(options)
    attempts, backoff = options.get("attempts"), options.get("backoff")
    if attempts is not None and (type(attempts) is not int or attempts < 1):
        raise InvalidInput("attempts", f"must be a whole number from 1 on, got {attempts!r}")
    if backoff is not None and not isinstance(backoff, Exponential | Fixed):
        raise InvalidInput("backoff", f"must be an Exponential or a Fixed, got {backoff!r}")
    if backoff is not None and attempts is None:
        raise InvalidInput("backoff", "needs attempts: without them a step is not tried again here")
