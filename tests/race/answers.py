"""What each process of the second hammer calls, and the book in which it writes the answers.

All calls are public ones with a key: jobs with unique keys of every scope, with publish keys and
with both, alone and in batches, own and in a caller's transaction of every isolation level; and
`once`. A line is written to the book after the answer is certain, by one system call, so that the
book of a process that was killed holds all but its last call.
"""

import os
import random
import signal
from datetime import UTC, datetime, timedelta
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import Any, NamedTuple

import msgspec
from psycopg.errors import SerializationFailure

from onefold import Enqueued, NewJob, SerializationConflict
from onefold.errors import Conflict
from tests.fixtures.place import Place
from tests.race.crew import Racer

KIND = "answered"
HOUR = timedelta(hours=1)
KEYS = 6
VICTIM = 99
"""The rank of the process that is killed."""
PUBLISH_KEYS = 5
EPOCH = 20
"""Steps after which publish keys and keys of `once` are new ones."""
LEVELS = ("read committed", "read committed", "repeatable read", "serializable")

SCOPES: dict[str, dict[str, Any]] = {
    "queued": {"unique_while": "queued"},
    "active": {"unique_while": "active"},
    "exists": {"unique_while": "exists"},
    "short": {"unique_for": timedelta(milliseconds=3)},
    "long": {"unique_while": "queued", "unique_for": timedelta(milliseconds=8)},
    "expires": {"unique_while": "active"},
}


class Answered(msgspec.Struct, tag=True):
    """A job that was answered for, and committed."""

    number: int
    id: str
    duplicate: bool
    key: str | None
    publish: str | None
    began: int
    is_fresh: bool
    """Answered from what was committed when the call began: not at the higher levels."""


class Undone(msgspec.Struct, tag=True):
    """Jobs that were new in a transaction that was rolled back."""

    ids: list[str]


class Freed(msgspec.Struct, tag=True):
    """Jobs that give up a key of a scope, confirmed at this moment."""

    scope: str
    ids: list[str]
    at: int
    wall: int
    """The same moment in microseconds of the wall clock, which PostgreSQL reads, too."""


class Did(msgspec.Struct, tag=True):
    """A `once` that was committed: the token that its own body stored, or the stored one."""

    key: str
    token: str
    won: bool


Line = Answered | Undone | Freed | Did


class Book:
    """A file to which one process appends."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, line: Line) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read(folder: Path) -> list[Line]:
    """All lines of all books; a line that was cut off by a kill is left out."""
    texts = [path.read_bytes() for path in folder.iterdir()]
    whole = [text[: text.rfind(b"\n") + 1].splitlines() for text in texts]
    return [msgspec.json.decode(line, type=Line) for lines in whole for line in lines]


class Game(NamedTuple):
    """What all callers of a turn have in common."""

    folder: str
    """Of the books."""
    seed: str
    turn: int


class Caller:
    """One process, with dice of its own."""

    def __init__(self, racer: Racer, game: Game) -> None:
        self._racer = racer
        self._dice = random.Random(f"{game.seed} {racer.rank}")
        self._book = Book(Path(game.folder) / str(racer.rank))
        self._number = (game.turn * 100 + racer.rank) * 1_000_000
        self._turn = game.turn
        self._epoch = ""

    def step(self, step: int) -> None:
        """Do one thing."""
        self._epoch = f"{self._turn}.{step // EPOCH}"
        does = (self._enqueue, self._enqueue, self._enqueue, self._work, self._once)
        self._dice.choice(does)()

    def close(self) -> None:
        self._book.close()

    def _job(self) -> NewJob:
        dice, self._number = self._dice, self._number + 1
        scope = dice.choice(list(SCOPES))
        wanted = dice.choice(["unique", "unique", "publish", "both"])
        options = SCOPES[scope] if wanted != "publish" else {}
        soon = datetime.now(UTC) + timedelta(milliseconds=4)
        publish = f"{self._epoch} {dice.randrange(PUBLISH_KEYS)}"
        return NewJob(
            KIND,
            {"number": self._number},
            unique_key=f"{scope} {dice.randrange(KEYS)}" if wanted != "publish" else None,
            idempotency_key=publish if wanted != "unique" else None,
            expires_at=soon if scope == "expires" else None,
            **options,
        )

    def _enqueue(self) -> None:
        dice = self._dice
        jobs = [self._job() for _ in range(dice.choice([1, 1, 1, 5]))]
        if dice.random() < 0.6:
            began = monotonic_ns()
            self._note(jobs, self._send(self._racer.onefold, jobs), began, is_fresh=True)
            return
        level = dice.choice(LEVELS) if self._racer.place.on_postgres else ""
        with self._racer.place.connection() as connection:
            connection.execute(f"begin isolation level {level}" if level else "begin immediate")
            began = monotonic_ns()
            try:
                answers = self._send(self._racer.onefold.within(connection), jobs)
                if dice.random() < 0.4:
                    connection.execute("rollback")
                    self._book.write(Undone([each.id for each in answers if each.inserted]))
                    return
                connection.execute("commit")
            except (SerializationConflict, SerializationFailure):
                # A deadlock, a row that is newer than the snapshot, or the commit of a caller's
                # serializable transaction: nothing is stored.
                return
        self._note(jobs, answers, began, is_fresh=level in {"", "read committed"})

    def _send(self, onefold: Any, jobs: list[NewJob]) -> list[Enqueued]:
        if len(jobs) > 1 or self._dice.random() < 0.2:
            return list(onefold.enqueue_many(jobs))
        (job,) = jobs
        given = msgspec.structs.asdict(job)
        names = ("unique_key", "unique_while", "unique_for", "idempotency_key", "expires_at")
        return [onefold.enqueue(KIND, job.payload, **{name: given[name] for name in names})]

    def _note(
        self, jobs: list[NewJob], answers: list[Enqueued], began: int, *, is_fresh: bool
    ) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            payload: Any = job.payload
            self._book.write(
                Answered(
                    payload["number"],
                    answer.id,
                    answer.duplicate,
                    job.unique_key,
                    job.idempotency_key,
                    began,
                    is_fresh,
                )
            )

    def _work(self) -> None:
        """Take some jobs and finish them: both may free their keys."""
        engine = self._racer.onefold.deliveries
        jobs = engine.take(limit=4, worker=f"caller {self._racer.rank}", lease=HOUR)
        self._free("queued", [job.id for job in jobs])
        ended = [
            job.id
            for job, end in zip(jobs, engine.finish(jobs), strict=True)
            if end.status == "accepted"
        ]
        self._free("active", ended)

    def _free(self, scope: str, ids: list[str]) -> None:
        self._book.write(Freed(scope, ids, monotonic_ns(), time_ns() // 1000))

    def _once(self) -> None:
        key = f"{self._epoch} {self._dice.randrange(PUBLISH_KEYS)}"
        self._number += 1
        try:
            if self._dice.random() < 0.5:
                did = self._claim(self._racer.onefold, key)
            else:
                with self._racer.place.connection() as connection:
                    connection.execute(self._racer.place.begin)
                    did = self._claim(self._racer.onefold.within(connection), key)
                    if self._dice.random() < 0.4:
                        connection.execute("rollback")
                        return
                    connection.execute("commit")
        except Conflict:
            return  # another one is at work, or was killed at work
        self._book.write(did)

    def _claim(self, onefold: Any, key: str) -> Did:
        token = str(self._number)
        with onefold.once("answers", key) as claim:
            if claim.won:
                claim.result = token
        return Did(key, claim.result, claim.won)


def press(racer: Racer, game: Game, steps: int, victim: int) -> None:
    """Make so many steps; half-way, the first of the racers kills the victim."""
    caller = Caller(racer, game)
    for step in range(steps):
        if racer.rank == 0 and step == steps // 2:
            os.kill(victim, signal.SIGKILL)
        caller.step(step)
    caller.close()


def press_until_killed(pipe: Connection, place: Place, game: Game) -> None:
    """Make steps without end; the parent knows when they have begun."""
    caller = Caller(Racer(VICTIM, place.open(), place), game)
    caller.step(0)
    pipe.send(None)
    for step in count(1):
        caller.step(step)
