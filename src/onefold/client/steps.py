"""`step` for a handler that was given its job by a server: done once per job, and remembered."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, cast

from onefold.client.flows import steps
from onefold.client.flows.steps import StepPlace
from onefold.effects.values import fingerprint_of
from onefold.errors import InvalidInput, OutcomeUnknown
from onefold.model import given, names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self, Unpack

    from onefold.client.async_driver import AsyncDriver
    from onefold.client.flow import Ask, Flow
    from onefold.client.sync_driver import SyncDriver

P = ParamSpec("P")
R = TypeVar("R")


class RemoteStepOptions(TypedDict, total=False):
    """How a step is done."""

    key: str | None
    """Tells this step from others of its name, where their order is the data's."""
    unsafe: bool
    """It must not be done twice: an attempt that vanished is unknown, and not repeated."""


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
        given.options(self._options, RemoteStepOptions.__optional_keys__)
        self._seen: Counter[str] = Counter()

    def _place(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> StepPlace:
        names.name(name, "name")
        key = self._options.get("key")
        if key is None:
            self._seen[name] += 1
        return StepPlace(
            job_id=self._job_id,
            fence=self._fence,
            name=name,
            key=None if key is None else names.key(key, "key"),
            occurrence=1 if key is not None else self._seen[name],
            fingerprint=fingerprint_of(name, function, args, kwargs),
        )

    def _failed(self, place: StepPlace, error: Exception) -> Flow[None]:
        """A handler that goes on may ask again: it is the same step."""
        if place.key is None:
            self._seen[place.name] -= 1
        unknown = self._unsafe and isinstance(error, OutcomeUnknown)
        return steps.fail(self._ask, place, error, unknown=unknown)

    def _finished(self, place: StepPlace, value: Any) -> Flow[Any]:
        return steps.finish(self._ask, place, value, unsafe=self._unsafe)

    @property
    def _unsafe(self) -> bool:
        return given.flag(self._options.get("unsafe", False), "unsafe")

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
        middle of it, it is done again, unless it is `unsafe`.
        """
        place = self._place(name, function, args, kwargs)
        begun = self._driver.run(steps.begin(self._ask, place, unsafe=self._unsafe))
        if begun.is_over:
            return cast("R", begun.result)
        try:
            value = function(*args, **kwargs)
        except Exception as error:
            self._driver.run(self._failed(place, error))
            raise
        return cast("R", self._driver.run(self._finished(place, value)))


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
        middle of it, it is done again, unless it is `unsafe`.
        """
        place = self._place(name, function, args, kwargs)
        begun = await self._driver.run(steps.begin(self._ask, place, unsafe=self._unsafe))
        if begun.is_over:
            return cast("R", begun.result)
        try:
            value = await function(*args, **kwargs)
        except Exception as error:
            await self._driver.run(self._failed(place, error))
            raise
        return cast("R", await self._driver.run(self._finished(place, value)))
