"""The calls about what has become of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.calls.procedure import Conductor, Procedure, once_through
from onefold.model.ids import parse_id
from onefold.operations import attempts as history

if TYPE_CHECKING:
    from onefold.model.job import Attempt


class HistoryCalls:
    """Look at the deliveries of a job."""

    _conductor: Conductor
    _tenant: str

    def attempts(self, job_id: str) -> list[Attempt]:
        """The job's deliveries, the newest last: who had it, for how long, and how it ended.

        The last fifty are kept, as long as the job is; those that were handed back unstarted are
        not among them.
        """
        return self._conductor.run(self._attempts(job_id))

    async def aattempts(self, job_id: str) -> list[Attempt]:
        """`attempts`, awaited."""
        return await self._conductor.arun(self._attempts(job_id))

    def _attempts(self, job_id: str) -> Procedure[list[Attempt]]:
        wanted = parse_id(job_id)
        return once_through(lambda sql: history.attempts(sql, self._tenant, wanted), write=False)
