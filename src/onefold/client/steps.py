"""Steps of a job that a server delivered: each is done once per job, and its result is stored."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

from onefold.client.claims import HttpStep, HttpSteps
from onefold.effects.step_codec import fingerprint_of
from onefold.errors import InvalidInput, OutcomeUnknown
from onefold.model import checks
from onefold.model.outcome import checked_rules
from onefold.model.verify import ENDS_THE_RUN, Done, NotDone, asking, check_doubt, is_not_done
from onefold.runtime import Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Self, Unpack

    from onefold.client.connection import Connection
    from onefold.model.outcome import ErrorRule
    from onefold.model.step import StepReply
    from onefold.model.verify import Verify
    from onefold.runtime import Procedure, Runtime

P = ParamSpec("P")
R = TypeVar("R")


class RemoteStepOptions(TypedDict, total=False):
    """How a step is done."""

    key: str | None
    """Distinguishes steps of one name whose order depends on the data."""
    unsafe: bool
    """It must not be done twice. After a crash or an exception its outcome is unknown."""
    verify: Verify | None
    """Finds the outcome of an unknown attempt by its key: Done, NotDone or None."""
    not_done: ErrorRule | Sequence[ErrorRule]
    """Exceptions of an unsafe step which mean that nothing has happened."""


class _Steps:
    """The steps of one delivery."""

    def __init__(
        self,
        runtime: Runtime,
        connection: Connection,
        job_id: str,
        fence: int,
        *,
        options: RemoteStepOptions | None = None,
        occurrences: Counter[str] | None = None,
    ) -> None:
        """Made by a client. `occurrences` counts the steps of each name."""
        if type(fence) is not int or fence < 1:
            raise InvalidInput("fence", f"must be the number of the delivery, got {fence!r}")
        self._runtime = runtime
        self._connection = connection
        self._steps = HttpSteps(connection)
        self._job_id = job_id
        self._fence = fence
        self._options: RemoteStepOptions = options or {}
        checks.options(self._options, RemoteStepOptions.__optional_keys__)
        check_doubt(self._options)
        self._not_done = checked_rules(self._options.get("not_done", ()), "not_done")
        self._verify = self._options.get("verify")
        self._unsafe = self._options.get("unsafe", False)
        self._occurrences: Counter[str] = Counter() if occurrences is None else occurrences

    def using(self, **options: Unpack[RemoteStepOptions]) -> Self:
        """The same steps with other options: `steps.using(unsafe=True).step(…)`."""
        merged: RemoteStepOptions = {**self._options, **options}
        return type(self)(
            self._runtime,
            self._connection,
            self._job_id,
            self._fence,
            options=merged,
            occurrences=self._occurrences,
        )

    def _step(
        self, name: str, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Procedure[Any]:
        checks.name(name, "name")
        key = self._options.get("key")
        step = HttpStep(
            job_id=self._job_id,
            fence=self._fence,
            name=name,
            key=None if key is None else checks.key(key, "key"),
            occurrence=1 if key is not None else self._occurrences[name] + 1,
            fingerprint=fingerprint_of(name, function, args, kwargs),
        )
        if key is None:
            self._occurrences[name] += 1
        try:
            return (yield from self._do(step, partial(function, *args, **kwargs)))
        except BaseException:
            # A repeated call means the same step.
            if key is None:
                self._occurrences[name] -= 1
            raise

    def _do(self, step: HttpStep, function: Callable[[], Any]) -> Procedure[Any]:
        begun, is_unknown = yield from self._begin(step)
        if begun.is_finished:
            return begun.result
        if is_unknown and (found := (yield from self._resolve(step, begun))) is not None:
            return found.result
        try:
            value = yield Call(function)
        except Exception as error:
            if not self._unsafe or is_not_done(error, self._not_done):
                yield from self._steps.fail(step, error, unknown=False)
                raise
            found = yield from self._resolve(step, begun, error)
            if found is None:
                raise
            return found.result
        return (yield from self._steps.finish(step, value, unsafe=self._unsafe))

    def _begin(self, step: HttpStep) -> Procedure[tuple[StepReply, bool]]:
        """Begin it; True if `verify` must find the outcome of an earlier attempt."""
        try:
            return (yield from self._steps.begin(step, unsafe=self._unsafe)), False
        except OutcomeUnknown:
            if self._verify is None:
                raise
        begun = yield from self._steps.begin(step, unsafe=self._unsafe, verified=True)
        return begun, not begun.is_finished

    def _resolve(
        self, step: HttpStep, begun: StepReply, error: Exception | None = None
    ) -> Procedure[Done | None]:
        """Ask `verify` and store its result; None if the step was not done.

        `error` is the exception of the step. None is also returned if that ends the run.
        """
        result: object = None
        if self._verify is not None and not isinstance(error, ENDS_THE_RUN):
            result = yield from self._ask(self._verify, step, begun.idempotency_key or "")
        if isinstance(error, OutcomeUnknown):
            error.verifiable = True
        match result:
            case Done(value):
                return Done((yield from self._steps.finish(step, value, unsafe=self._unsafe)))
            case NotDone():
                if error is not None:
                    yield from self._steps.fail(step, error, unknown=False)
                return None
            case None:
                verifiable = self._verify is not None
                failure: Exception = OutcomeUnknown(key=step.name, verifiable=verifiable)
            case _:
                reason = f"must answer Done, NotDone or None, got {result!r}"
                failure = InvalidInput("verify", reason)
        yield from self._steps.fail(step, error or failure, unknown=True)
        if isinstance(error, ENDS_THE_RUN):
            return None
        raise failure

    def _ask(self, verify: Verify, step: HttpStep, key: str) -> Procedure[object]:
        try:
            with asking(step.name):
                return (yield Call(verify, (key,)))
        except Exception as failure:
            yield from self._steps.fail(step, failure, unknown=True)
            raise


class RemoteSteps(_Steps):
    """The steps of one delivery. Made by `Client.steps`."""

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do something once per job. Its result is stored, and a rerun receives it.

        The returned value is the stored one, read back from JSON. If the handler dies in the step,
        or the step raises, it is done again, unless it is `unsafe`.
        """
        result: R = self._runtime.run(self._step(name, function, args, kwargs))
        return result


class AsyncRemoteSteps(_Steps):
    """`RemoteSteps` with coroutines. Made by `AsyncClient.steps`."""

    async def step(
        self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Do something once per job. Its result is stored, and a rerun receives it.

        The returned value is the stored one, read back from JSON. If the handler dies in the step,
        or the step raises, it is done again, unless it is `unsafe`.
        """
        result: R = await self._runtime.arun(self._step(name, function, args, kwargs))
        return result
