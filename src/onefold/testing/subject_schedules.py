"""The calls about schedules, for the subjects of the contract suite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from onefold.calls.jobs import EMPTY

if TYPE_CHECKING:
    from typing import Unpack

    from onefold.calls.schedules import ScheduleOptions
    from onefold.model.job import Enqueued, Json
    from onefold.model.schedule import Schedule


class ScheduleSubject(ABC):
    """Onefold's calls about schedules under their own names."""

    @abstractmethod
    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        """Call a method in this subject's way."""

    def schedule(
        self,
        name: str,
        cron: str,
        *,
        kind: str = "report",
        payload: Json = EMPTY,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """`Onefold.schedule`."""
        made: Schedule = self._call("schedule", name, cron, kind=kind, payload=payload, **options)
        return made

    def schedules(self) -> list[Schedule]:
        """`Onefold.schedules`."""
        found: list[Schedule] = self._call("schedules")
        return found

    def unschedule(self, name: str) -> bool:
        """`Onefold.unschedule`."""
        done: bool = self._call("unschedule", name)
        return done

    def pause_schedule(self, name: str) -> bool:
        """`Onefold.pause_schedule`."""
        done: bool = self._call("pause_schedule", name)
        return done

    def resume_schedule(self, name: str) -> bool:
        """`Onefold.resume_schedule`."""
        done: bool = self._call("resume_schedule", name)
        return done

    def run_now(self, name: str) -> Enqueued:
        """`Onefold.run_now`."""
        answer: Enqueued = self._call("run_now", name)
        return answer
