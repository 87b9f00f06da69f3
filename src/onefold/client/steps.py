"""`step` for a handler that was given its job by a server: done once per job, and remembered."""

from __future__ import annotations

import inspect
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, cast

from onefold.client.flows import steps
from onefold.client.flows.steps import StepPlace
from onefold.effects.step_codec import fingerprint_of
from onefold.errors import InvalidInput, OutcomeUnknown
from onefold.model import checks
from onefold.model.outcome import checked_rules
from onefold.model.verify import ENDS_THE_RUN, Done, NotDone, asking, check_doubt, is_not_done

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence
    from typing import Self, Unpack

    from onefold.client.async_driver import AsyncDriver
    from onefold.client.flow import Ask, Flow
    from onefold.client.flows.steps import Begun
    from onefold.client.sync_driver import SyncDriver
    from onefold.model.outcome import ErrorRule
    from onefold.model.verify import Verify

P = ParamSpec("P")
R = TypeVar("R")


class RemoteStepOptions(TypedDict, total=False):
    """How a step is done."""

    key: str | None
    """Tells this step from others of its name, where their order is the data's."""
    unsafe: bool
    """It must not be done twice: an attempt that vanished or raised is unknown, not repeated."""
    verify: Verify | None
    """Finds out what became of an unknown attempt, by its key: Done, NotDone or None."""
    not_done: ErrorRule | Sequence[ErrorRule]
    """Exceptions of an unsafe step that mean that nothing has happened."""


class _Steps:
    """What the two colours share: the delivery, and how many steps of a name there were."""

    def __init__(
        self, ask: Ask, job_id: str, fence: int, options: RemoteStepOptions | None = None
    ) -> None:
        if type(fence) is not int or fence < 1:
            raise InvalidInput("fence", f"must be the number of the delivery, got {fence!r}")
        self._ask = ask
        self._job_id = job_id
        self._fence = fence
        self._options: RemoteStepOptions = options or {}
        checks.options(self._options, RemoteStepOptions.__optional_keys__)
        check_doubt(self._options)
        self._seen: Counter[str] = Counter()

    def _place(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> StepPlace:
        checks.name(name, "name")
        key = self._options.get("key")
        place = StepPlace(
            job_id=self._job_id,
            fence=self._fence,
            name=name,
            key=None if key is None else checks.key(key, "key"),
            occurrence=1 if key is not None else self._seen[name] + 1,
            fingerprint=fingerprint_of(name, function, args, kwargs),
        )
        if key is None:
            self._seen[name] += 1
        return place

    @contextmanager
    def _or_given_up(self, place: StepPlace) -> Generator[None]:
        """Whatever ends this before the step is over: who asks again means the same step."""
        try:
            yield
        except BaseException:
            if place.key is None:
                self._seen[place.name] -= 1
            raise

    def _begin(self, place: StepPlace) -> Flow[tuple[Begun, bool]]:
        """Begin it; True where `verify` has to find out what became of an earlier attempt."""
        try:
            return (yield from steps.begin(self._ask, place, unsafe=self._unsafe)), False
        except OutcomeUnknown:
            if self._options.get("verify") is None:
                raise
        begun = yield from steps.begin(self._ask, place, unsafe=self._unsafe, verified=True)
        return begun, not begun.is_over

    def _is_doubtful(self, error: Exception) -> bool:
        rules = checked_rules(self._options.get("not_done", ()), "not_done")
        return self._unsafe and not is_not_done(error, rules)

    def _verifying(self, begun: Begun, error: Exception | None) -> Callable[[], Any]:
        """Ask `verify`, where it was given, and the run does not end anyway."""
        verify = self._options.get("verify")
        if verify is None or isinstance(error, ENDS_THE_RUN):
            return lambda: None
        return partial(verify, begun.idempotency_key or "")

    def _judged(
        self, place: StepPlace, verdict: object, error: Exception | None
    ) -> Flow[Done | None]:
        """Act on what `verify` found out; `error` is what the step raised, where it was run."""
        if isinstance(error, OutcomeUnknown):
            error.verifiable = True
        match verdict:
            case Done(result):
                return Done((yield from self._finished(place, result)))
            case NotDone():
                if error is not None:
                    yield from steps.fail(self._ask, place, error, unknown=False)
                return None
            case None:
                verifiable = self._options.get("verify") is not None
                failure: Exception = OutcomeUnknown(key=place.name, verifiable=verifiable)
            case _:
                reason = f"must answer Done, NotDone or None, got {verdict!r}"
                failure = InvalidInput("verify", reason)
        yield from steps.fail(self._ask, place, error or failure, unknown=True)
        if isinstance(error, ENDS_THE_RUN):
            return None
        raise failure

    def _finished(self, place: StepPlace, value: Any) -> Flow[Any]:
        return steps.finish(self._ask, place, value, unsafe=self._unsafe)

    @property
    def _unsafe(self) -> bool:
        return self._options.get("unsafe", False)

    def _sharing(self, other: Self) -> Self:
        """Steps of one name are counted together, whatever their options."""
        self._seen = other._seen
        return self


class RemoteSteps(_Steps):
    """The steps of one delivery. Made by `Client.steps`."""

    def __init__(
        self,
        driver: SyncDriver,
        ask: Ask,
        job_id: str,
        fence: int,
        options: RemoteStepOptions | None = None,
    ) -> None:
        """Nothing is asked yet."""
        super().__init__(ask, job_id, fence, options)
        self._driver = driver

    def using(self, **options: Unpack[RemoteStepOptions]) -> RemoteSteps:
        """The same with other options: `steps.using(unsafe=True).step(…)`."""
        made = RemoteSteps(
            self._driver, self._ask, self._job_id, self._fence, {**self._options, **options}
        )
        return made._sharing(self)

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do something once per job: its result is stored, and a rerun is given it.

        What it returns is what was stored, read back as plain JSON. Where the handler dies in the
        middle of it, or it raises, it is done again, unless it is `unsafe`.
        """
        place = self._place(name, function, args, kwargs)
        with self._or_given_up(place):
            return self._done(place, partial(function, *args, **kwargs))

    def _done(self, place: StepPlace, function: Callable[[], R]) -> R:
        driver = self._driver
        begun, is_unknown = driver.run(self._begin(place))
        if begun.is_over:
            return cast("R", begun.result)
        if is_unknown and (found := self._find_out(place, begun)) is not None:
            return cast("R", found.result)
        try:
            value = function()
        except Exception as error:
            if not self._is_doubtful(error):
                driver.run(steps.fail(self._ask, place, error, unknown=False))
                raise
            found = self._find_out(place, begun, error)
            if found is None:
                raise
            return cast("R", found.result)
        return cast("R", driver.run(self._finished(place, value)))

    def _find_out(
        self, place: StepPlace, begun: Begun, error: Exception | None = None
    ) -> Done | None:
        """What became of it; None where it was not done, or `error` ends the run."""
        try:
            with asking(place.name):
                verdict = self._verifying(begun, error)()
        except Exception as failure:
            self._driver.run(steps.fail(self._ask, place, failure, unknown=True))
            raise
        return self._driver.run(self._judged(place, verdict, error))


class AsyncRemoteSteps(_Steps):
    """`RemoteSteps`, awaited. Made by `AsyncClient.steps`."""

    def __init__(
        self,
        driver: AsyncDriver,
        ask: Ask,
        job_id: str,
        fence: int,
        options: RemoteStepOptions | None = None,
    ) -> None:
        """Nothing is asked yet."""
        super().__init__(ask, job_id, fence, options)
        self._driver = driver

    def using(self, **options: Unpack[RemoteStepOptions]) -> AsyncRemoteSteps:
        """The same with other options: `steps.using(unsafe=True).step(…)`."""
        made = AsyncRemoteSteps(
            self._driver, self._ask, self._job_id, self._fence, {**self._options, **options}
        )
        return made._sharing(self)

    async def step(
        self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Do something once per job: its result is stored, and a rerun is given it.

        What it returns is what was stored, read back as plain JSON. Where the handler dies in the
        middle of it, or it raises, it is done again, unless it is `unsafe`.
        """
        place = self._place(name, function, args, kwargs)
        with self._or_given_up(place):
            return await self._done(place, partial(function, *args, **kwargs))

    async def _done(self, place: StepPlace, function: Callable[[], Awaitable[R]]) -> R:
        driver = self._driver
        begun, is_unknown = await driver.run(self._begin(place))
        if begun.is_over:
            return cast("R", begun.result)
        if is_unknown and (found := await self._find_out(place, begun)) is not None:
            return cast("R", found.result)
        try:
            value = await function()
        except Exception as error:
            if not self._is_doubtful(error):
                await driver.run(steps.fail(self._ask, place, error, unknown=False))
                raise
            found = await self._find_out(place, begun, error)
            if found is None:
                raise
            return cast("R", found.result)
        return cast("R", await driver.run(self._finished(place, value)))

    async def _find_out(
        self, place: StepPlace, begun: Begun, error: Exception | None = None
    ) -> Done | None:
        """What became of it; None where it was not done, or `error` ends the run."""
        try:
            with asking(place.name):
                verdict = self._verifying(begun, error)()
                if inspect.isawaitable(verdict):
                    verdict = await verdict
        except Exception as failure:
            await self._driver.run(steps.fail(self._ask, place, failure, unknown=True))
            raise
        return await self._driver.run(self._judged(place, verdict, error))
