"""What a worker needs to know of a handler, and of whoever knows them by their kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from onefold.declaration import Isolation
    from onefold.effects.run import Run
    from onefold.model.job import Job, Json
    from onefold.model.outcome import Outcome


class Handler(Protocol):
    """Runs jobs of a kind. A declared job is one."""

    @property
    def function(self) -> Callable[..., Any]:
        """What is called."""
        ...

    @property
    def is_async(self) -> bool:
        """Whether it is awaited."""
        ...

    @property
    def isolation(self) -> Isolation:
        """Where a plain function runs."""
        ...

    @property
    def timeout(self) -> timedelta | None:
        """How long it may take, unless the job says otherwise."""
        ...

    @property
    def on_dead(self) -> Callable[[Job], Any] | None:
        """Called with a job that was buried."""
        ...

    @property
    def stores_result(self) -> bool:
        """Whether what it returns is kept."""
        ...

    @property
    def wants_run(self) -> bool:
        """Whether it takes a `Run`."""
        ...

    def bind(self, job: Job, run: Run | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What it is called with."""
        ...

    def forgives(self, error: BaseException) -> bool:
        """True where an error means that the work has been done."""
        ...

    def outcome_of(self, error: BaseException) -> Outcome | None:
        """What an error means; None leaves it to the attempts that remain."""
        ...

    def to_json(self, value: Any) -> Json:
        """What it returned, as it is stored."""
        ...


class Handlers(Protocol):
    """Handlers by the kinds of their jobs. A registry of declared jobs is one."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """What there is, for people."""
        ...

    def get(self, kind: str) -> Handler | None:
        """The handler of a kind, if there is one."""
        ...
