"""The calls about queues, for the subjects of the contract suite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.app import Onefold
    from onefold.model.limit import Limit
    from onefold.model.queue import Outlook, QueueSettings
    from onefold.operations.queues import TakenUnderControl


class QueueSubject(ABC):
    """Onefold's calls about queues under their own names, never in a caller's transaction."""

    onefold: Onefold

    @abstractmethod
    def carry_out(self, target: object, name: str, *args: Any, **options: Any) -> Any:
        """Call a method of Onefold itself: on its own pool."""

    def pause(self, queue: str) -> None:
        """`Onefold.pause`."""
        self.carry_out(self.onefold, "pause", queue)

    def resume(self, queue: str) -> None:
        """`Onefold.resume`."""
        self.carry_out(self.onefold, "resume", queue)

    def set_limits(
        self,
        queue: str,
        *,
        limit: Limit | None = None,
        group_limit: Limit | None = None,
        ordered: bool = False,
    ) -> None:
        """`Onefold.set_limits`."""
        self.carry_out(
            self.onefold, "set_limits", queue, limit=limit, group_limit=group_limit, ordered=ordered
        )

    def clear_limits(self, queue: str) -> None:
        """`Onefold.clear_limits`."""
        self.carry_out(self.onefold, "clear_limits", queue)

    def queue(self, name: str) -> QueueSettings:
        """One of `Onefold.queues`, which must be there."""
        found: list[QueueSettings] = self.carry_out(self.onefold, "queues")
        return next(queue for queue in found if queue.name == name)


class QueueEngineCalls(ABC):
    """The engine's calls about queues under their own names."""

    @abstractmethod
    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        """Call a method of the engine in the subject's way."""

    def look(self, queue: str) -> Outlook:
        """`Engine.look` at one queue."""
        seen: list[Outlook] = self._call("look", [queue])
        return seen[0]

    def take_controlled(
        self,
        queue: str,
        *,
        limit: int = 1,
        worker: str = "worker",
        lease: timedelta = timedelta(minutes=1),
        unknown: Sequence[str] = (),
    ) -> TakenUnderControl:
        """`Engine.take_controlled`."""
        taken: TakenUnderControl = self._call(
            "take_controlled", queue, limit=limit, worker=worker, lease=lease, unknown=unknown
        )
        return taken
