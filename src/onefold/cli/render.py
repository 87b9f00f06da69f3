"""Jobs, attempts and steps as JSON values and as text."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onefold import Attempt, Job
    from onefold.model.step import Step

SHORT = 80
"""Characters of a message in a list."""


def job_value(job: Job) -> dict[str, Any]:
    """A job as a JSON value."""
    return {
        "id": job.id,
        "tenant": job.tenant,
        "kind": job.kind,
        "queue": job.queue,
        "state": job.state,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "fence": job.fence,
        "generation": job.generation,
        "worker": job.worker,
        "unique_key": job.unique_key,
        "group_key": job.group_key,
        "tags": job.tags,
        "metadata": job.metadata,
        "run_at": job.run_at,
        "created_at": job.created_at,
        "taken_at": job.taken_at,
        "lease_until": job.lease_until,
        "ended_at": job.ended_at,
        "expires_at": job.expires_at,
        "tick": job.tick,
        "reason": job.reason,
        "error": job.error,
        "payload": job.payload,
        "result": job.result,
    }


def attempt_value(attempt: Attempt) -> dict[str, Any]:
    """An attempt as a JSON value."""
    return {
        "number": attempt.number,
        "fence": attempt.fence,
        "worker": attempt.worker,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "seconds": _seconds(attempt.duration),
        "outcome": attempt.outcome,
        "reason": attempt.reason,
        "error": attempt.error,
    }


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


def job_lines(job: Job) -> Iterator[str]:
    """A job as text, one line per field; empty fields are left out."""
    value = job_value(job)
    value["attempt"] = f"{job.attempt} of {job.max_attempts}"
    value["error"] = problem(job.error)
    unsaid = {"tenant", "max_attempts", "priority", "generation"}
    if job.priority:
        unsaid.discard("priority")
    for name, found in value.items():
        if name not in unsaid and found not in (None, "", (), {}):
            yield f"{name.replace('_', ' '):<12}  {_shown(found)}"
    trace = (job.error or {}).get("traceback")
    if trace:
        yield ""
        yield from str(trace).splitlines()


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
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)  # by the names of the fields, not of the wire
    return value.isoformat() if isinstance(value, datetime) else str(value)


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
