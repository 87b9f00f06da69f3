"""What is measured, as data."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

RATE: Final = "jobs/s"
"""The reading that every lap has."""
MICRO: Final = 1e6

Database: TypeAlias = Literal["postgres", "sqlite"]
Way: TypeAlias = Literal["tcp", "unix"]
"""How PostgreSQL is connected to."""
Options: TypeAlias = dict[str, str | int]


class Contestant(msgspec.Struct, frozen=True):
    """Who runs: a function of a module in `bench.contestants`, with options of its own."""

    name: str
    plays: str
    """`module.function`."""
    options: Options = {}


class Target(msgspec.Struct, frozen=True):
    """What is wanted: the median of one contestant over that of another, or by itself.

    With neither a least nor a most, the ratio is reported and nothing is wanted of it.
    """

    contestant: str
    against: str | None
    """None: the target is for the median itself."""
    at_least: float | None = None
    at_most: float | None = None
    reading: str = RATE

    @property
    def says(self) -> str:
        """What is wanted, for a table."""
        least = [] if self.at_least is None else [f"≥ {self.at_least:.2f}"]
        most = [] if self.at_most is None else [f"≤ {self.at_most:.2f}"]
        return ", ".join(least + most) or "none"

    @property
    def is_wanted(self) -> bool:
        """Whether anything is."""
        return self.at_least is not None or self.at_most is not None

    def is_reached_by(self, value: float) -> bool:
        """Whether it is neither too little nor too much."""
        enough = self.at_least is None or value >= self.at_least
        return enough and (self.at_most is None or value <= self.at_most)


class Measurement(msgspec.Struct, frozen=True):
    """One thing that several contestants do, with the same number of jobs where it has any."""

    name: str
    says: str
    database: Database
    jobs: int
    contestants: tuple[Contestant, ...]
    targets: tuple[Target, ...] = ()
    options: Options = {}
    """For every contestant; its own options win."""
    readings: tuple[str, ...] = (RATE,)
    """What is read off each lap."""


class Order(msgspec.Struct, frozen=True):
    """The input of one run."""

    plays: str
    url: str
    jobs: int
    options: Options = {}

    def number(self, name: str) -> int:
        """An option that is a number; 0 where it is not given."""
        return int(self.options.get(name, 0))

    def word(self, name: str) -> str:
        """An option that is a word; "" where it is not given."""
        return str(self.options.get(name, ""))


class Shift(msgspec.Struct, frozen=True):
    """The input of one worker process."""

    worker: str
    """A module of `bench.contestants`."""
    url: str
    tally: str
    """The path of the tally."""
    place: int
    """Which of the processes it is, counted from 0."""
    options: Options = {}


class Lap(msgspec.Struct, frozen=True):
    """What one run answers."""

    jobs: int
    seconds: float
    steal: float
    """The share of the machine's time that its host gave to others."""
    cpu_seconds: float
    """Of the contestant's own processes; the database's are not in it."""
    server_seconds: float | None = None
    """CPU time of the database's processes that serve connections; None of SQLite."""
    background_seconds: float | None = None
    """CPU time of the database's other processes."""
    wal_bytes: int | None = None
    """What the database wrote to its log."""
    marks: dict[str, float] = {}
    """What else was found, by the name of the reading."""

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds

    def read(self, reading: str) -> float:
        """One of the figures that the run has made."""
        return self.rate if reading == RATE else self.marks[reading]

    @property
    def costs(self) -> Costs:
        """What one of its jobs has cost."""
        return Costs(
            client_us=self._per_job(self.cpu_seconds, MICRO),
            server_us=self._per_job(self.server_seconds, MICRO),
            background_us=self._per_job(self.background_seconds, MICRO),
            wal_bytes=self._per_job(self.wal_bytes),
        )

    def _per_job(self, used: float | None, factor: float = 1.0) -> float | None:
        return used * factor / self.jobs if used is not None and self.jobs else None


class Costs(msgspec.Struct, frozen=True):
    """What one job costs. None where there are no jobs, or the database does not say."""

    client_us: float | None = None
    server_us: float | None = None
    background_us: float | None = None
    wal_bytes: float | None = None


class Run(msgspec.Struct, frozen=True):
    """One run, for the record."""

    measurement: str
    contestant: str
    turn: int
    """The number of the round."""
    lap: Lap
    load: float
    """The machine's load average when it began: others may be at work."""
    set_aside: bool
    """More than the tolerated share of its time was stolen."""
