"""Lines of the log, as people read them: at `onefold worker` and at Django's `onefold_worker`."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from onefold.model.job import Job

job_log: logging.Logger = logging.getLogger("onefold.worker.jobs")
"""What becomes of single jobs: one line at the end, and when it is taken and started at DEBUG."""

MOST: Final = 50
"""Lines a second about jobs that have not failed; the rest are counted."""

LINE: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
JOB_FIELDS: Final = ("job_id", "kind", "attempt")


class TextFormatter(logging.Formatter):
    """A line, with the job at its end where there is one and the line does not name it."""

    def __init__(self, line: str = LINE) -> None:
        """`line` is in logging's own spelling."""
        super().__init__(line)

    def format(self, record: logging.LogRecord) -> str:
        """The line, and below it what a handler has raised, wherever that was."""
        text = super().format(record)
        raised = record.__dict__.get("exception")
        return f"{text}\n{raised}" if isinstance(raised, str) else text

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """The line without its traceback."""
        line = super().formatMessage(record)
        job_id, kind, attempt = (record.__dict__.get(field) for field in JOB_FIELDS)
        if job_id is None or str(job_id) in line:
            return line
        return f"{line} [job {job_id}, {kind}, attempt {attempt}]"


def job_fields(job: Job) -> dict[str, Any]:
    """What a record says of its job beside the sentence, for logs that programs read."""
    return {"job_id": job.id, "kind": job.kind, "attempt": job.attempt}


class Sample:
    """Lets so many lines through a second, and logs how many it did not."""

    def __init__(self, most: int = MOST) -> None:
        """Used in one event loop."""
        self._most = most
        self._logged = 0
        self._left_out = 0
        self._timer: asyncio.TimerHandle | None = None

    def admits(self) -> bool:
        """Whether one more line may be logged."""
        if self._timer is None:
            # In no job's context: the line is about several.
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(1.0, self.tell, context=Context())
        if self._logged < self._most:
            self._logged += 1
            return True
        self._left_out += 1
        return False

    def tell(self) -> None:
        """Log how many lines were left out, and begin anew."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._left_out:
            job_log.info(
                "%d more jobs ended within a second. At most %d a second have a line of their own.",
                self._left_out,
                self._most,
                extra={"left_out": self._left_out},
            )
        self._logged = self._left_out = 0


def lasted(seconds: float) -> str:
    """A time as people read it: 0.3 ms, 12 ms, 3.4 s, 90 s."""
    return f"{round(seconds * 1000, 1):g} ms" if seconds < 1 else f"{round(seconds, 1):g} s"
