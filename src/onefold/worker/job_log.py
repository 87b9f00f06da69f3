"""The log of single jobs, and the text format of `onefold worker` and Django's `onefold_worker`."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from onefold.model.job import JobRow

job_log: logging.Logger = logging.getLogger("onefold.worker.jobs")
"""One line per job when it ends; at DEBUG also when it is taken and started."""

MOST: Final = 50
"""Lines per second about jobs that did not fail; further ones are only counted."""

LINE: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
JOB_FIELDS: Final = ("job_id", "kind", "attempt")


class TextFormatter(logging.Formatter):
    """Appends the job of a record, unless the message contains its id."""

    def __init__(self, line: str = LINE) -> None:
        """`line` is a format of the logging module."""
        super().__init__(line)

    def format(self, record: logging.LogRecord) -> str:
        """The line, and below it the traceback of the handler, also from another process."""
        text = super().format(record)
        raised = record.__dict__.get("exception")
        return f"{text}\n{raised}" if isinstance(raised, str) else text

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """The line without a traceback."""
        line = super().formatMessage(record)
        job_id, kind, attempt = (record.__dict__.get(field) for field in JOB_FIELDS)
        if job_id is None or str(job_id) in line:
            return line
        return f"{line} [job {job_id}, {kind}, attempt {attempt}]"


def job_fields(job: JobRow) -> dict[str, Any]:
    """The fields of a log record that identify its job."""
    return {"job_id": job.id, "kind": job.kind, "attempt": job.attempt}


class Sample:
    """Limits lines per second, and logs how many were dropped."""

    def __init__(self, most: int = MOST) -> None:
        """Used in one event loop."""
        self._most = most
        self._logged = 0
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None

    def admits(self) -> bool:
        """Whether another line may be logged."""
        if self._timer is None:
            # An empty context: the line is about several jobs.
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(1.0, self.flush, context=Context())
        if self._logged < self._most:
            self._logged += 1
            return True
        self._dropped += 1
        return False

    def flush(self) -> None:
        """Log how many lines were dropped, and start the next second."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._dropped:
            job_log.info(
                "%d more jobs ended within a second. At most %d per second are logged one by one.",
                self._dropped,
                self._most,
                extra={"left_out": self._dropped},
            )
        self._logged = self._dropped = 0


def lasted(seconds: float) -> str:
    """A duration as text: 0.3 ms, 12 ms, 3.4 s, 90 s."""
    return f"{round(seconds * 1000, 1):g} ms" if seconds < 1 else f"{round(seconds, 1):g} s"
