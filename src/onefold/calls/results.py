"""Waiting for what a job returned."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from onefold.calls.procedure import Conductor, Pause, Procedure, Transaction, waits
from onefold.errors import JobFailed, JobNotFound, ResultTimeout
from onefold.model.timestamps import span
from onefold.operations import jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.model.job import Job

FOREVER: Final = timedelta(days=365 * 100)


def plain_result(job: Job) -> Any:
    """The result as it is stored: JSON. None where none was kept."""
    return job.result


class JobResults:
    """Waits for the results of one tenant's jobs, asking now and then.

    On a connection of our own, even where the job was enqueued on the caller's: it has to be
    committed before anybody can run it.
    """

    def __init__(
        self, conductor: Conductor, tenant: str, read: Callable[[Job], Any] = plain_result
    ) -> None:
        """`read` makes the result of a completed job."""
        self._conductor = conductor.own()
        self._tenant = tenant
        self._read = read

    def wait(self, job_id: str, timeout: timedelta | None) -> Any:
        """The result, once the job has ended."""
        return self._conductor.run(self._wait(job_id, timeout))

    async def await_(self, job_id: str, timeout: timedelta | None) -> Any:  # noqa: ASYNC109 - both colours wait alike
        """`wait`, awaited."""
        return await self._conductor.arun(self._wait(job_id, timeout))

    def reading(self, read: Callable[[Job], Any]) -> JobResults:
        """The same, with results made in another way."""
        return JobResults(self._conductor, self._tenant, read)

    def _wait(self, job_id: str, timeout: timedelta | None) -> Procedure[Any]:
        patience = FOREVER if timeout is None else timeout
        span(patience, "timeout")
        pauses = waits(patience)
        while True:
            job: Job = yield from self._look(job_id)
            if job.state == "completed":
                return self._read(job)
            if job.state in {"dead", "cancelled"}:
                raise JobFailed(
                    job.id, kind=job.kind, state=job.state, reason=job.reason, error=job.error
                )
            pause = next(pauses, None)
            if pause is None:
                raise ResultTimeout(job.id, state=job.status, timeout=patience)
            yield Pause(pause)

    def _look(self, job_id: str) -> Procedure[Job]:
        found: dict[str, Job] = yield Transaction(
            lambda sql: jobs.get(sql, self._tenant, [job_id]), write=False
        )
        if job_id not in found:
            raise JobNotFound(job_id)
        return found[job_id]
