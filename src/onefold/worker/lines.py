"""Lines of the log, as people read them: at `onefold worker` and at Django's `onefold_worker`."""

from __future__ import annotations

import logging
from typing import Final

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
