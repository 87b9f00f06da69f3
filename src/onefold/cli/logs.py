"""Logging of `onefold worker` and `onefold serve`: text, or one JSON object per line.

Every record that is logged while a handler runs carries the job's id, kind and attempt.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.console import Console
from rich.highlighter import NullHighlighter
from rich.logging import RichHandler

from onefold import InvalidInput
from onefold.model.failure import printable, shown
from onefold.worker.executor import running
from onefold.worker.job_log import TextFormatter

if TYPE_CHECKING:
    from onefold.hooks import Hooks

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error", "critical")

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
}
"""The attributes of every record. All others are extra fields."""


def configure(form: str, level: str, *, worker: str | None = None) -> None:
    """Send all logs of this process to stderr. `worker` is the name of the worker."""
    if form not in FORMATS:
        raise InvalidInput("log_format", f"must be text or json, got {form!r}")
    if level.lower() not in LEVELS:
        raise InvalidInput("log_level", f"must be one of {', '.join(LEVELS)}, got {level!r}")
    handler = _handler(form)
    handler.addFilter(_AddJob(worker))
    root = logging.getLogger()
    for before in root.handlers[:]:
        root.removeHandler(before)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)


def configure_here(_: Hooks, *, form: str, level: str, worker: str) -> None:
    """The same in a process of isolated handlers, unless the application configures logging."""
    if not logging.getLogger().handlers:
        configure(form, level, worker=worker)


def _handler(form: str) -> logging.Handler:
    if form == "json":
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
    elif sys.stderr.isatty():
        handler = RichHandler(
            console=Console(stderr=True),
            show_path=False,
            omit_repeated_times=False,
            log_time_format="%X",
            highlighter=NullHighlighter(),
        )
        handler.setFormatter(TextFormatter("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(TextFormatter())
    return handler


class _AddJob(logging.Filter):
    """Adds the job and the worker to a record that does not have them."""

    def __init__(self, worker: str | None) -> None:
        super().__init__()
        self._worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        fields = record.__dict__
        job = running.get()
        if job is not None and "job_id" not in fields:
            fields.update(job_id=job.id, kind=job.kind, attempt=job.attempt)
        if self._worker is not None:
            fields.setdefault("worker", self._worker)
        return True


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, extra fields and exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON, for fields of any type."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        fields |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = printable(self.formatException(record.exc_info))
        elif record.exc_text:
            fields["exception"] = printable(record.exc_text)
        if record.stack_info:
            fields["stack"] = printable(record.stack_info)
        return _encoded(fields)


def _encoded(fields: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(fields, enc_hook=shown).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        # Text that is not Unicode, a key that is not text, a very large integer: use text.
        return msgspec.json.encode({name: shown(value) for name, value in fields.items()}).decode()
