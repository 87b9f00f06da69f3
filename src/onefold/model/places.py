"""Where the takes of a worker begin.

PostgreSQL keeps the index entries of taken jobs while any transaction may still see them: a dump, a
report, a replica. A take from the beginning reads all of these. So a worker remembers how far it
has come, and begins there for a while.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onefold.model.ids import LOWEST_ID, shard_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from onefold.model.job import JobRow

SPAN: Final = (
    "from_shard", "from_queue", "from_priority", "from_run_at", "from_id", "before_priority",
)  # fmt: skip
"""The parameters of a statement that reads spans."""
COMMIT: Final = 100_000
"""Microseconds that a transaction may take from its enqueue to its commit, usually. A job that is
committed later may be before the place: a take from the beginning finds it."""
MOST: Final = 16
"""How many priorities of a queue are remembered."""
ABOVE: Final = -(2**15) - 1
BELOW: Final = 2**15
"""Around all priorities."""
Lane: TypeAlias = tuple[int, str]
"""A shard and a queue."""
Place: TypeAlias = tuple[int, str]
"""The time and the id of a job."""
BEGINNING: Final[Place] = (0, LOWEST_ID)


class Places:
    """By shard, queue and priority: the time and the id of a job, up to which all were taken."""

    def __init__(self, before: Places | None = None) -> None:
        """Everything begins at the beginning; the places before return if no job is found."""
        self._before: dict[Lane, dict[int, Place]] = {} if before is None else before.passed
        self.passed: dict[Lane, dict[int, Place]] = {
            lane: dict.fromkeys(places, BEGINNING) for lane, places in self._before.items()
        }

    def pass_by(self, taken: Sequence[JobRow], drained: Collection[str], shards: int) -> None:
        """A take has found these jobs, in their order, and all jobs of the queues in `drained`."""
        now = min((job.taken_at or 0 for job in taken), default=0)
        recent = (now - COMMIT, LOWEST_ID)
        worst: dict[Lane, int] = {}
        for job in taken:
            lane = (shard_of(job.id, shards), job.queue)
            places = self.passed.setdefault(lane, {})
            if job.priority in places or len(places) < MOST:
                places[job.priority] = min((job.run_at, job.id), recent)
            worst[lane] = job.priority
        for lane, places in self.passed.items():
            before = self._before.get(lane, {})
            end = BELOW if lane[1] in drained else worst.get(lane, ABOVE)
            for priority, place in places.items():
                if priority < end:
                    places[priority] = (
                        recent if taken else max(place, before.get(priority, BEGINNING))
                    )

    def spans(self, shards: Iterable[int], queues: Iterable[str]) -> dict[str, Any]:
        """The parts of the order to read: each begins at a place, and ends before the next one."""
        rows: list[tuple[int | str, ...]] = []
        for shard, queue in product(shards, queues):
            places = sorted(self.passed.get((shard, queue), {}).items())
            starts = [(ABOVE, BEGINNING), *places]
            ends = [*(priority for priority, _ in places), BELOW]
            for (priority, place), end in zip(starts, ends, strict=True):
                rows.append((shard, queue, priority, *place, end))
        return {name: [row[column] for row in rows] for column, name in enumerate(SPAN)}
