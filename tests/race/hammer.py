"""What each process of the hammer does, a step at a time, by the numbers that it is given."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from onefold import (
    Enqueued,
    Gone,
    Job,
    JobNotFound,
    NewJob,
    Onefold,
    SerializationConflict,
    WrongState,
)
from tests.race.crew import Racer

HOUR = timedelta(hours=1)
NOW = timedelta(0)
INSTANT = timedelta(microseconds=1)
SHORT = timedelta(milliseconds=5)
KEYS = 6

Word: TypeAlias = Callable[[str], object]

SCOPES: dict[str, dict[str, Any]] = {
    "queued": {"unique_while": "queued"},
    "active": {"unique_while": "active"},
    "exists": {"unique_while": "exists"},
    "window": {"unique_for": SHORT},
    "both": {"unique_while": "queued", "unique_for": SHORT},
    "replace": {"unique_while": "queued"},
    "rerun": {"unique_while": "active"},
    "rerun queued": {"unique_while": "queued"},
}


class Report(NamedTuple):
    """What a process was told."""

    answered: set[str]
    undone: set[str]
    triggers: set[int]
    counts: Counter[str]


def hammer(racer: Racer, steps: int, seed: str, turn: int = 0) -> Report:
    """Produce, work and administrate, in turns that the seed decides.

    Every request of a run has a number of its own: of the turn, the racer and the step.
    """
    dice = random.Random(f"{seed} {racer.rank}")
    report = Report(set(), set(), set(), Counter())
    hands: list[Job] = []
    for step in range(steps):
        role = dice.choices(["produce", "work", "administrate"], [5, 4, 1])[0]
        report.counts[role] += 1
        if role == "produce":
            _produce(
                racer, dice, report, number=(turn * 10_000 + racer.rank) * 1_000_000 + step * 20
            )
        elif role == "work":
            _work(racer.onefold, dice, f"worker {racer.rank}", hands)
        else:
            _administrate(racer.onefold, dice)
    return report


def _produce(racer: Racer, dice: random.Random, report: Report, number: int) -> None:
    scope = dice.choice(list(SCOPES))
    size = dice.choice([1, 1, 4, 12])
    # What is to run again must not expire instead.
    expires = not scope.startswith("re") and dice.random() < 0.2
    jobs = [
        NewJob(
            "hammer",
            {"number": number + place},
            unique_key=f"{scope} {dice.randrange(KEYS)}",
            idempotency_key=f"{number + place}" if dice.random() < 0.2 else None,
            queue=dice.choice(["default", "other"]),
            expires_at=datetime.now(UTC) + SHORT if expires else None,
            **SCOPES[scope],
        )
        for place in range(size)
    ]
    how: Any = scope.partition(" ")[0] if scope[:3] in {"rep", "rer"} else "keep"
    if dice.random() < 0.7:
        _note(report, jobs, list(racer.onefold.enqueue_many(jobs, on_duplicate=how)))
        return
    with racer.place.connection() as connection:
        connection.execute(racer.place.begin)
        try:
            answers = list(racer.onefold.within(connection).enqueue_many(jobs, on_duplicate=how))
        except SerializationConflict:
            # A deadlock with a caller's transaction can be anybody's; nothing was answered.
            report.counts["deadlock"] += 1
            return
        if dice.random() < 0.5:
            connection.execute("rollback")
            report.undone.update(answer.id for answer in answers if answer.inserted)
        else:
            connection.execute("commit")
            _note(report, jobs, answers)


def _note(report: Report, jobs: list[NewJob], answers: list[Enqueued]) -> None:
    # Of several triggers of one key in a call, the last one counts.
    newest = {job.unique_key: job.payload["number"] for job in jobs}
    report.triggers.update(
        number for key, number in newest.items() if key is not None and key.startswith("rerun")
    )
    report.answered.update(answer.id for answer in answers if answer.inserted)
    report.counts["duplicate"] += sum(answer.duplicate for answer in answers)


def _work(onefold: Onefold, dice: random.Random, worker: str, hands: list[Job]) -> None:
    """Say how the last deliveries ended, and take the next: what runs, runs for some steps."""
    engine = onefold.deliveries
    dice.shuffle(hands)
    words: dict[str, list[Job]] = {}
    for job in hands:
        word = dice.choices(
            ["finish", "retry", "defer", "bury", "hand back", "vanish"], [6, 3, 1, 1, 1, 1]
        )[0]
        words.setdefault(word, []).append(job)
    engine.retry(words.get("retry", []), after=NOW, error="no luck")
    engine.defer(words.get("defer", []), after=NOW)
    engine.bury(words.get("bury", []), reason="hopeless")
    engine.hand_back(words.get("hand back", []))
    _, hands[:] = engine.finish_and_take(
        words.get("finish", []),
        ["default", "other"],
        limit=dice.randint(1, 6),
        worker=worker,
        lease=dice.choice([INSTANT, HOUR]),
    )
    engine.heartbeat(hands, lease=dice.choice([INSTANT, HOUR]))


def _administrate(onefold: Onefold, dice: random.Random) -> None:
    onefold.deliveries.rescue()
    words: list[tuple[str, Word]] = [
        ("ready", onefold.cancel),
        ("retrying", onefold.cancel),
        ("running", onefold.cancel),
        ("dead", onefold.replay),
        ("cancelled", onefold.replay),
    ]
    state, word = dice.choice(words)
    for job in _some(onefold, dice, state):
        # Somebody else may be quicker; then we are told so.
        with suppress(WrongState, JobNotFound, Gone):
            word(job.id)
    if dice.random() < 0.2:
        onefold.deliveries.fold()
        onefold.deliveries.prune()
        onefold.deliveries.sweep()


def _some(onefold: Onefold, dice: random.Random, state: str) -> list[Job]:
    jobs = list(onefold.find(state=state, limit=200, newest_first=True))
    return dice.sample(jobs, min(len(jobs), 2))
