"""A step of a job: its name, its stored form, and the form for readers.

A step is a claim of the surface `step`, whose scope is the job. Its fence is the fence of the
delivery that began it: the delivery that has the job has its steps, so a step needs no lease.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import msgspec

from onefold.model import checks
from onefold.model.claim import TAKEOVERS, Holding
from onefold.model.json_text import decode_payload
from onefold.model.lifecycle import State
from onefold.model.timestamps import Moment, from_micros

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

SURFACE: Final = "step"

StepState: TypeAlias = Literal["running", "finished", "failed", "retrying", "unknown"]

_LABEL: Final = re.compile(r"(?P<name>[^\[]+)(?:\[(?P<key>.*)\]|#(?P<occurrence>\d+))", re.DOTALL)


class StepName(msgspec.Struct, frozen=True):
    """Identifies a step of a job: by its number among those of one name, or by a key."""

    name: str
    occurrence: int = 1
    key: str | None = None
    generation: int = 0

    @property
    def label(self) -> str:
        """For people: `charge`, the second one `charge#2`, one with a key `charge[o-7]`."""
        if self.key is not None:
            return f"{self.name}[{self.key}]"
        return self.name if self.occurrence == 1 else f"{self.name}#{self.occurrence}"

    @property
    def text(self) -> str:
        """The stored text. A name contains no bracket, so no two steps have the same text."""
        place = f"#{self.occurrence}" if self.key is None else f"[{self.key}]"
        return f"{self.generation}:{self.name}{place}"

    def key_of_job(self, job_id: str) -> str:
        """For the system that the step calls: the same in each attempt, new after a replay."""
        generation = f".{self.generation}" if self.generation else ""
        return f"{job_id}{generation}:{self.label}"


def step_name(name: object, *, key: object = None, occurrence: int, generation: int) -> StepName:
    """Check the name of a step."""
    checked = checks.name(name, "name")
    wanted = None if key is None else checks.key(key, "key")
    found = StepName(checked, 1 if key is not None else occurrence, wanted, generation)
    checks.key(found.text, "key" if key is not None else "name")
    return found


def read_name(text: str) -> StepName:
    """The step that was stored under `text`."""
    generation, _, label = text.partition(":")
    found = _LABEL.fullmatch(label)
    assert found is not None
    if found["key"] is not None:
        return StepName(found["name"], 1, found["key"], int(generation))
    return StepName(found["name"], int(found["occurrence"]), None, int(generation))


NOTHING: Final = msgspec.Raw()
"""Empty JSON, for a field that is left out."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stored exception."""

    error: msgspec.Raw
    """Type, message and the other fields of a failed job's error."""
    args: msgspec.Raw = NOTHING
    """The arguments of the exception; empty if they are not plain JSON."""


class Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the result column of a claim contains for a step."""

    attempts: int = 1
    begun: int = 0
    """How many steps of the job were over when this one began."""
    place: int = 0
    """Its place in the order in which steps ended; 0 while it has not ended."""
    value: msgspec.Raw = NOTHING
    failure: Failure | None = None
    """The last failure; of a step that is over, the final one."""

    @property
    def text(self) -> str:
        """The stored text."""
        return msgspec.json.encode(self).decode()

    @property
    def value_text(self) -> str:
        """The JSON of the result."""
        return bytes(self.value).decode() or "null"


class Sized(Protocol):
    """A row of a list, with values that may be long."""

    @property
    def size(self) -> int:
        """The bytes of these values."""
        ...


class StepRow(msgspec.Struct, frozen=True):
    """A stored step. The fields are in the order of read_steps' columns."""

    key: str
    owner: str
    state: int
    fence: int
    fingerprint: str | None
    takeover: int
    created_at: int
    settled_at: int | None
    result: str | None

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> StepRow:
        """From a row of any statement that returns whole steps."""
        return cls(*row)

    @property
    def size(self) -> int:
        """The bytes of its notes."""
        return len((self.result or "").encode())

    @property
    def is_settled(self) -> bool:
        """Over: finished, or failed for good."""
        return self.state == Holding.SETTLED

    @property
    def is_held(self) -> bool:
        """Begun, without a stored end."""
        return self.state == Holding.HELD

    @property
    def must_not_rerun(self) -> bool:
        """True if it must not run again before the outcome of the last run is known."""
        return self.is_held and TAKEOVERS[self.takeover] == "refuse"

    @property
    def notes(self) -> Notes:
        """The decoded notes of the step."""
        if self.result is None:
            return Notes(attempts=0)
        return msgspec.json.decode(self.result, type=Notes)


class Step(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A step of a job, as it is stored."""

    name: str
    """The name of the step."""
    label: str
    """`charge`, `charge#2` or `charge[o-7]`."""
    occurrence: int
    """1 for the first step of this name."""
    key: str | None
    """The key that distinguishes it, if the code gave one."""
    generation: int
    """Grows with each fresh replay of the job; steps of older generations are not used again."""
    state: StepState
    """`retrying` will run again; `failed` and `unknown` will not by themselves."""
    attempts: int
    """How often the step was begun."""
    started_at: Moment
    """When its last run began."""
    ended_at: Moment | None
    """When it ended; None while it has not."""
    result: Any = None
    """What the step returned."""
    error: Any = None
    """The last failure: type and message."""

    @property
    def duration(self) -> timedelta | None:
        """The duration of the run that ended it; None while it has not ended."""
        return None if self.ended_at is None else self.ended_at - self.started_at


class StepPage(msgspec.Struct, frozen=True):
    """Some steps of a job, in the order in which they began, and the cursor of the next page."""

    items: list[Step]
    """The steps of this page."""
    next: str | None = None
    """Pass it as `after=` for the next page; None on the last."""


class StepReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The response to a begin, a finish or a fail of a step over HTTP."""

    outcome: Literal["run", "finished", "failed", "retrying", "unknown"]
    """`run`: do it, then finish it. `finished`: do not; `result` is stored."""
    name: str
    """The name of the step."""
    label: str
    """The name with its key or occurrence: `charge`, `charge#2` or `charge[o-7]`."""
    attempt: str | msgspec.UnsetType = msgspec.UNSET
    """Of `run`: send it with the finish or the fail."""
    attempts: int | msgspec.UnsetType = msgspec.UNSET
    """Of `run`: how often the step was begun, this time included."""
    idempotency_key: str | msgspec.UnsetType = msgspec.UNSET
    """Of `run`: a key for the system that the step calls, the same in each attempt of the job."""
    result: Any = msgspec.UNSET
    """Of `finished`: what the step returned."""

    @property
    def is_finished(self) -> bool:
        """True if the step was done before."""
        return self.outcome == "finished"


def shown(row: StepRow, *, state: int | None, fence: int | None, results: bool) -> Step:
    """A stored step for readers; `state` and `fence` are those of the job."""
    name, notes = read_name(row.key), row.notes
    failure = None if notes.failure is None else bytes(notes.failure.error).decode()
    return Step(
        name=name.name,
        label=name.label,
        occurrence=name.occurrence,
        key=name.key,
        generation=name.generation,
        state=_state(row, state, is_current=fence == row.fence),
        attempts=notes.attempts,
        started_at=from_micros(row.created_at),
        ended_at=None if row.settled_at is None else from_micros(row.settled_at),
        result=decode_payload(notes.value_text) if results else None,
        error=None if failure is None else decode_payload(failure),
    )


def _state(row: StepRow, job: int | None, *, is_current: bool) -> StepState:
    if row.is_settled:
        return "finished" if row.notes.failure is None else "failed"
    if row.is_held and job == State.RUNNING and is_current:
        return "running"
    if row.must_not_rerun:
        return "unknown"
    return "retrying" if job in {State.QUEUED, State.RUNNING} else "failed"
