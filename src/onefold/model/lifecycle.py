"""The states of a job, the transitions between them, and the retention of finished jobs.

1. Each change of a job's state is decided in this module; the statements only write it.
2. The functions read no clock, database or setting: time and policy are arguments.
3. The diagram in docs/explanation/states.md is generated from TRANSITIONS.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from onefold.model.retry import DEFAULT_BACKOFF, Backoff
from onefold.model.timestamps import MICROSECOND, Duration, set_durations

if TYPE_CHECKING:
    from collections.abc import Mapping


POISON_DELIVERIES: Final = 5
"""A job is buried after so many deliveries in a row whose worker vanished."""


class State(IntEnum):
    """The stored state. The number is the bit of the state in a unique scope."""

    QUEUED = 0
    RUNNING = 1
    COMPLETED = 2
    DEAD = 3
    CANCELLED = 4

    @property
    def word(self) -> str:
        """The name of the state for users."""
        return self.name.lower()

    @property
    def is_final(self) -> bool:
        """True if the state does not change by itself."""
        return self >= State.COMPLETED


_DAY: Final = 24 * 60 * 60 * 1_000_000
KEEP: Final[Mapping[State, int]] = {
    State.COMPLETED: _DAY,
    State.DEAD: 30 * _DAY,
    State.CANCELLED: 7 * _DAY,
}
"""How long a finished job is kept, if the job does not set it."""


class Event(Enum):
    """The events in the life of a job."""

    ENQUEUE = "enqueue"
    TAKE = "take"
    FINISH = "finish"
    FAIL = "failed"
    LAPSE = "lease expired"
    BURY = "bury"
    DEFER = "defer"
    HAND_BACK = "handed back"
    CANCEL = "cancel"
    EXPIRE = "expired"
    RUN_NOW = "run now"
    REPLAY = "replay"
    REPLAY_FRESH = "replay, fresh"


class Effect(NamedTuple):
    """The effect of an event: the next state, the attempt and the fence."""

    to: State
    attempt: str = "kept"
    """`kept`, `+1`, `-1`, or `0`."""
    fence: str = "kept"
    otherwise: State | None = None
    """The next state if no attempt is left."""


Q, R, C, D, X = State.QUEUED, State.RUNNING, State.COMPLETED, State.DEAD, State.CANCELLED

TRANSITIONS: Final[dict[tuple[State | None, Event], Effect]] = {
    (None, Event.ENQUEUE): Effect(Q, attempt="0"),
    (Q, Event.TAKE): Effect(R, attempt="+1", fence="+1"),
    (R, Event.FINISH): Effect(C),
    (R, Event.FAIL): Effect(Q, otherwise=D),
    (R, Event.LAPSE): Effect(Q, otherwise=D),
    (R, Event.BURY): Effect(D),
    (R, Event.DEFER): Effect(Q, attempt="-1"),
    (R, Event.HAND_BACK): Effect(Q, attempt="-1"),
    (Q, Event.CANCEL): Effect(X),
    (R, Event.CANCEL): Effect(X),
    (Q, Event.EXPIRE): Effect(D),
    (Q, Event.RUN_NOW): Effect(Q),
    (D, Event.REPLAY): Effect(Q, attempt="0"),
    (X, Event.REPLAY): Effect(Q, attempt="0"),
    (D, Event.REPLAY_FRESH): Effect(Q, attempt="0"),
    (X, Event.REPLAY_FRESH): Effect(Q, attempt="0"),
    (C, Event.REPLAY_FRESH): Effect(Q, attempt="0"),
}


def allows(state: State, event: Event) -> bool:
    """Whether `event` is possible for a job in `state`."""
    return (state, event) in TRANSITIONS


class Standing(msgspec.Struct, frozen=True):
    """The fields of a stored job that a decision depends on."""

    state: State
    attempt: int
    max_attempts: int
    vanished: int = 0
    """Deliveries in a row whose worker vanished."""
    backoff: Backoff = DEFAULT_BACKOFF


class Transition(msgspec.Struct, frozen=True):
    """The fields to write: the next standing of the job."""

    state: State
    attempt: int
    vanished: int
    run_at: int | None = None
    """When it may run again; None keeps the stored time (no meaning for a final state)."""
    not_before: int | None = None
    """The end of a backoff, which a duplicate must not shorten."""
    reason: str | None = None
    """Why it ended: `failed`, `poison`, `expired`, or the reason of the caller."""


def next_step(
    job: Standing,
    event: Event,
    *,
    now: int,
    after: int | None = None,
    reason: str | None = None,
) -> Transition:
    """The result of `event` for `job`; `after` is a delay in microseconds.

    The caller has checked `allows(job.state, event)`; a KeyError here is a bug.
    """
    effect = TRANSITIONS[job.state, event]
    attempt = _attempt(job.attempt, effect.attempt)
    vanished = _vanished(job.vanished, event)

    if event is Event.LAPSE and vanished >= POISON_DELIVERIES:
        return Transition(State.DEAD, attempt, vanished, reason="poison")
    if effect.otherwise is not None and attempt >= job.max_attempts:
        return Transition(effect.otherwise, attempt, vanished, reason=reason or event.value)
    if effect.to.is_final:
        return Transition(effect.to, attempt, vanished, reason=reason or _default_reason(event))
    if effect.otherwise is not None and after is None:
        after = job.backoff.wait(attempt) // MICROSECOND
    run_at = now + (after or 0)
    not_before = None if effect.otherwise is None else run_at
    return Transition(effect.to, attempt, vanished, run_at=run_at, not_before=not_before)


def _attempt(attempt: int, change: str) -> int:
    match change:
        case "+1":
            return attempt + 1
        case "-1":
            return max(attempt - 1, 0)
        case "0":
            return 0
        case _:
            return attempt


def _vanished(vanished: int, event: Event) -> int:
    if event is Event.LAPSE:
        return vanished + 1
    # Handed back before it started, or only made due: not evidence about the job.
    return vanished if event in {Event.HAND_BACK, Event.RUN_NOW} else 0


def _default_reason(event: Event) -> str | None:
    return None if event is Event.FINISH else event.value


def replacement_run_at(
    *, wanted: int, created_at: int, not_before: int | None, max_wait: int | None
) -> int:
    """When a queued holder runs after its payload was replaced.

    A debounce moves it to `wanted`, but not past `created_at + max_wait`. Duplicates do not
    shorten the backoff of a holder that has failed.
    """
    if max_wait is not None:
        wanted = min(wanted, created_at + max_wait)
    return wanted if not_before is None else max(wanted, not_before)


def mermaid() -> str:
    """The table as a state diagram, for the docs."""
    lines = ["stateDiagram-v2"]
    for (source, event), effect in TRANSITIONS.items():
        start = "[*]" if source is None else source.word
        lines.append(f"    {start} --> {effect.to.word}: {_label(event, effect)}")
        if effect.otherwise is not None:
            lines.append(f"    {start} --> {effect.otherwise.word}: {event.value}, none left")
    return "\n".join(lines)


def _label(event: Event, effect: Effect) -> str:
    notes = [f"attempt {effect.attempt}" if effect.attempt in {"+1", "-1"} else ""]
    if effect.attempt == "0" and event is not Event.ENQUEUE:
        notes.append("attempt 0")
    if effect.fence == "+1":
        notes.append("fence +1")
    if effect.otherwise is not None:
        notes.append("attempts left")
    return ", ".join([event.value, *(note for note in notes if note)])


class Retention(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """How long the record of a finished job is kept, by outcome. None: the default."""

    completed: Duration | None = None
    """How long a completed job is kept."""
    dead: Duration | None = None
    """How long a dead letter is kept."""
    cancelled: Duration | None = None
    """How long a cancelled job is kept."""

    def __post_init__(self) -> None:
        """A plain timedelta becomes a `Duration`."""
        set_durations(self, "completed", "dead", "cancelled")

    def over(self, default: Retention | None) -> Retention:
        """The same; None is replaced by the value of `default`."""
        if default is None:
            return self
        return Retention(
            completed=default.completed if self.completed is None else self.completed,
            dead=default.dead if self.dead is None else self.dead,
            cancelled=default.cancelled if self.cancelled is None else self.cancelled,
        )
