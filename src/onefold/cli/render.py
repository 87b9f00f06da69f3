"""Jobs, attempts and steps as JSON values and as text."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.model.json_text import decode_payload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onefold import Attempt, Job
    from onefold.model.step import Step
    from onefold.model.waiting import Waiting

# Control characters except tab and newline.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
SHORT = 80
"""Characters of a message in a list."""


def struct_value(value: msgspec.Struct) -> dict[str, Any]:
    """A struct as a JSON value, by the names of its fields."""
    members = msgspec.structs.asdict(value)
    return {name.removesuffix("_json"): found for name, found in members.items()}


def attempt_value(attempt: Attempt) -> dict[str, Any]:
    """An attempt as a JSON value."""
    return {**msgspec.structs.asdict(attempt), "seconds": _seconds(attempt.duration)}


def step_value(step: Step) -> dict[str, Any]:
    """A step as a JSON value."""
    return {
        "name": step.label,
        "generation": step.generation,
        "state": step.state,
        "attempts": step.attempts,
        "started_at": step.started_at,
        "ended_at": step.ended_at,
        "seconds": _seconds(step.duration),
        "result": step.result,
        "error": step.error,
    }


def job_lines(job: Job, waiting: Waiting | None) -> Iterator[str]:
    """A job as text, one line per field; empty fields are left out."""
    value = struct_value(job)
    value["waiting"] = None if waiting is None else waiting.text
    value["attempt"] = f"{job.attempt} of {job.max_attempts}"
    value["error"] = problem(job.error)
    hidden = {"tenant", "max_attempts", "generation"}
    yield from field_lines(
        {name: found for name, found in value.items() if name not in hidden and found != 0}
    )
    trace = (job.error or {}).get("traceback")
    if trace:
        yield ""
        yield from str(trace).splitlines()


def field_lines(value: Mapping[str, object]) -> Iterator[str]:
    """One line per field; empty fields are left out."""
    for name, found in value.items():
        if found not in (None, "", (), {}, msgspec.UNSET):
            yield f"{name.replace('_', ' '):<12}  {_shown(found)}"


def _shown(found: object) -> str:
    match found:
        case datetime():
            return when(found) or ""
        case tuple():
            return ", ".join(map(str, found))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case str():
            return found
        case _:
            return json_text(found)


def json_text(value: object, *, indent: int | None = None) -> str:
    """JSON, with integers of any size, as payloads have them."""
    return json.dumps(value, ensure_ascii=False, default=_plain, indent=indent)


def _plain(value: object) -> object:
    match value:
        case msgspec.Struct():
            return msgspec.structs.asdict(value)  # by the names of the fields, not of the wire
        case msgspec.Raw():
            return decode_payload(value)
        case msgspec.UNSET:
            return None
        case timedelta():
            return value.total_seconds()
        case datetime():
            return value.isoformat()
        case _:
            return str(value)


def escaped(text: str) -> str:
    """Escape control characters: keys and errors can come from untrusted clients."""
    return _CONTROLS.sub(lambda found: repr(found.group())[1:-1], text)


def when(moment: datetime | None) -> str | None:
    """A time as text, to the second, in UTC."""
    return None if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def how_long(span: timedelta | None) -> str | None:
    """A duration as text."""
    return None if span is None else f"{span.total_seconds():.3g} s"


def problem(error: Mapping[str, Any] | None, *, length: int | None = None) -> str | None:
    """A failure in one line."""
    if error is None:
        return None
    parts = [str(part) for part in (error.get("type"), error.get("message")) if part]
    line = ": ".join(parts).partition("\n")[0]
    return line if length is None or len(line) <= length else line[: length - 1] + "…"


def attempt_rows(attempts: Sequence[Attempt]) -> list[tuple[object, ...]]:
    """For a table."""
    return [
        (
            attempt.number,
            attempt.fence,
            when(attempt.started_at),
            how_long(attempt.duration),
            attempt.worker,
            attempt.outcome,
            attempt.reason,
            problem(attempt.error, length=SHORT),
        )
        for attempt in attempts
    ]


def step_rows(steps: Sequence[Step]) -> list[tuple[object, ...]]:
    """For a table."""
    return [
        (
            step.label,
            step.state,
            step.attempts,
            when(step.started_at),
            how_long(step.duration),
            problem(step.error, length=SHORT),
        )
        for step in steps
    ]


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()
