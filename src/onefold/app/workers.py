"""`Workers`: which workers run, and how many jobs each of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.app.context import Noun
from onefold.operations import workers
from onefold.runtime import Procedure, awaited, call

if TYPE_CHECKING:
    from onefold.model.statistics import WorkerStatus


class Workers(Noun):
    """The workers of an installation, push workers of servers included."""

    @call
    def find(self) -> Procedure[tuple[WorkerStatus, ...]]:
        """All workers, by name.

        A worker that stops is gone from the list. One that was killed is shown as not alive after
        two minutes, and for about an hour.
        """
        return self._context.shards.read("workers", workers.find)

    afind: Final = awaited(find)
