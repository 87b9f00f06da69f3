"""A step of a job: what it is called, what is stored of it, and what its reader is told.

A step is a claim of the surface `step`, whose scope is the job. Its fence is the fence of the
delivery that began it: whoever has the job now has its steps, and no lease of their own is needed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

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
    """Which step of a job: by its place among those of one name, or by a key of its own."""

    name: str
    occurrence: int = 1
    key: str | None = None
    generation: int = 0

    @property
    def label(self) -> str:
        """As people read it: `charge`, the second one `charge#2`, one by its key `charge[o-7]`."""
        if self.key is not None:
            return f"{self.name}[{self.key}]"
        return self.name if self.occurrence == 1 else f"{self.name}#{self.occurrence}"

    @property
    def text(self) -> str:
        """As it is stored. A name has no bracket, so no two steps are spelled alike."""
        place = f"#{self.occurrence}" if self.key is None else f"[{self.key}]"
        return f"{self.generation}:{self.name}{place}"


def step_name(name: object, *, key: object = None, occurrence: int, generation: int) -> StepName:
    """Check what a step is called."""
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
"""No JSON at all, for a field that is left out."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An exception, as it is stored."""

    error: msgspec.Raw
    """Type, message and what else is told of a failed job."""
    args: msgspec.Raw = NOTHING
    """Of the exception; nothing where they are not plain JSON, and cannot be given back."""


class Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the column of a claim's result holds for a step."""

    attempts: int = 1
    begun: int = 0
    """How many steps of the job were over when this one began."""
    place: int = 0
    """Its place in the order in which steps were over; 0 while it is not."""
    value: msgspec.Raw = NOTHING
    failure: Failure | None = None
    """The last one; of a step that is over, the final one."""

    @property
    def text(self) -> str:
        """As it is stored."""
        return msgspec.json.encode(self).decode()

    @property
    def value_text(self) -> str:
        """The JSON of the result."""
        return bytes(self.value).decode() or "null"


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
        """A row of any statement that answers with whole steps."""
        return cls(*row)

    @property
    def is_settled(self) -> bool:
        """Over: finished, or failed for good."""
        return self.state == Holding.SETTLED

    @property
    def is_held(self) -> bool:
        """Begun, and nobody has said how it ended."""
        return self.state == Holding.HELD

    @property
    def must_not_rerun(self) -> bool:
        """True where nobody may run it again without knowing what became of the last run."""
        return self.is_held and TAKEOVERS[self.takeover] == "refuse"

    @property
    def notes(self) -> Notes:
        """What else is known of it."""
        if self.result is None:
            return Notes(attempts=0)
        return msgspec.json.decode(self.result, type=Notes)


class Step(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A step of a job, as it is stored."""

    name: str
    label: str
    """`charge`, `charge#2` or `charge[o-7]`."""
    occurrence: int
    """1 for the first step of this name."""
    key: str | None
    """What tells it apart, where the code gave one."""
    generation: int
    """Grows with every fresh replay of the job; the steps of older ones are not used again."""
    state: StepState
    """`retrying` will run again; `failed` and `unknown` will not by themselves."""
    attempts: int
    started_at: Moment
    ended_at: Moment | None
    result: Any = None
    error: Any = None
    """The last failure: type and message."""

    @property
    def duration(self) -> timedelta | None:
        """How long the run took that ended it; None while it has not."""
        return None if self.ended_at is None else self.ended_at - self.started_at


class StepReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The response to a begin, a finish or a fail of a step over HTTP."""

    outcome: Literal["run", "finished", "failed", "retrying", "unknown"]
    """`run`: do it, then finish it. `finished`: do not; `result` is stored."""
    name: str
    label: str
    attempt: str | msgspec.UnsetType = msgspec.UNSET
    """Of `run`: send it with the finish or the fail."""
    attempts: int | msgspec.UnsetType = msgspec.UNSET
    """Of `run`: how often the step was begun, this time included."""
    idempotency_key: str | msgspec.UnsetType = msgspec.UNSET
    """Of `run`: a key for the system that the step calls, the same in each attempt of the job."""
    result: Any = msgspec.UNSET

    @property
    def is_finished(self) -> bool:
        """True if the step was done before."""
        return self.outcome == "finished"


def shown(row: StepRow, *, state: int | None, fence: int | None, results: bool) -> Step:
    """A stored step for its reader, who knows the state and the fence of the job."""
    name, notes = read_name(row.key), row.notes
    failure = None if notes.failure is None else bytes(notes.failure.error).decode()
    return Step(
        name=name.name,
        label=name.label,
        occurrence=name.occurrence,
        key=name.key,
        generation=name.generation,
        state=_state(row, is_current=state == State.RUNNING and fence == row.fence),
        attempts=notes.attempts,
        started_at=from_micros(row.created_at),
        ended_at=None if row.settled_at is None else from_micros(row.settled_at),
        result=decode_payload(notes.value_text) if results else None,
        error=None if failure is None else decode_payload(failure),
    )


def _state(row: StepRow, *, is_current: bool) -> StepState:
    if row.is_settled:
        return "finished" if row.notes.failure is None else "failed"
    if row.is_held and is_current:
        return "running"
    return "unknown" if row.must_not_rerun else "retrying"
