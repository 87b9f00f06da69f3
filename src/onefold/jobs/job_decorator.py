"""`@onefold.job`: turns a function into a job, with types for checkers."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from onefold.jobs.job_function import Declaration, DeclareOptions, JobFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Unpack

    from onefold.app.jobs import JobCalls
    from onefold.effects.run import Run
    from onefold.jobs.job_function import Registry

P = ParamSpec("P")
R = TypeVar("R")
C_co = TypeVar("C_co", covariant=True)


class RunFirst(Protocol[P, C_co]):
    """A function whose first parameter is `run`: all types are kept."""

    def __call__(self, run: Run, *args: P.args, **kwargs: P.kwargs) -> C_co:
        """Handle."""
        ...


class RunSecond(Protocol[C_co]):
    """A function whose second parameter is `run`."""

    def __call__(self, first: Any, /, run: Run, *args: Any, **kwargs: Any) -> C_co:
        """Handle."""
        ...


class RunThird(Protocol[C_co]):
    """A function whose third parameter is `run`."""

    def __call__(self, first: Any, second: Any, /, run: Run, *args: Any, **kwargs: Any) -> C_co:
        """Handle."""
        ...


class RunByName(Protocol[C_co]):
    """A function that takes `run` by name."""

    def __call__(self, *args: Any, run: Run, **kwargs: Any) -> C_co:
        """Handle."""
        ...


class Declaring:
    """A decorator for functions, with options or without."""

    def __init__(
        self,
        calls: JobCalls,
        registry: Registry,
        options: DeclareOptions | None = None,
    ) -> None:
        self._calls = calls
        self._registry = registry
        self._options: DeclareOptions = {} if options is None else options

    @overload
    def __call__(
        self, function: RunFirst[P, Coroutine[Any, Any, R]], /
    ) -> JobFunction[P, R, Concatenate[Run, P], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(
        self, function: RunFirst[P, R], /
    ) -> JobFunction[P, R, Concatenate[Run, P], R]: ...
    # A ParamSpec can only lose its first parameter. So checkers do not check the arguments of such
    # a function; the enqueue does. One protocol per overload: mypy does not always find the fitting
    # member of a union.
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] # does not overlap for functions: they have names
        self, function: RunSecond[Coroutine[Any, Any, R]], /
    ) -> JobFunction[..., R, ..., Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] # as above
        self, function: RunSecond[R], /
    ) -> JobFunction[..., R, ..., R]: ...
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] # does not overlap for functions: they have names
        self, function: RunThird[Coroutine[Any, Any, R]], /
    ) -> JobFunction[..., R, ..., Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] # as above
        self, function: RunThird[R], /
    ) -> JobFunction[..., R, ..., R]: ...
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] # does not overlap for functions: they have names
        self, function: RunByName[Coroutine[Any, Any, R]], /
    ) -> JobFunction[..., R, ..., Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] # as above
        self, function: RunByName[R], /
    ) -> JobFunction[..., R, ..., R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> JobFunction[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobFunction[P, R, P, R]: ...
    @overload
    def __call__(self, **options: Unpack[DeclareOptions]) -> Declaring: ...
    def __call__(self, function: Any = None, **options: Any) -> Any:
        """Turn a function into a job; with options only, return a decorator."""
        if function is None:
            merged: DeclareOptions = {**self._options, **options}  # type: ignore[typeddict-item]
            return Declaring(self._calls, self._registry, merged)
        declaration = Declaration(function, self._options)
        job: JobFunction[..., Any, ..., Any] = JobFunction(
            declaration, self._calls, self._calls.context.now
        )
        self._registry.add(job)
        self._calls.context.defaults.set_for_kind(job.kind, declaration.defaults)
        return job
