"""What is measured, as data."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Database: TypeAlias = Literal["postgres", "sqlite"]
Options: TypeAlias = dict[str, str | int]


class Contestant(msgspec.Struct, frozen=True):
    """Who runs: a function of a module in `bench.contestants`, with options of its own."""

    name: str
    plays: str
    """`module.function`."""
    options: Options = {}


class Target(msgspec.Struct, frozen=True):
    """A ratio that is wanted: the median of one contestant over that of another."""

    contestant: str
    against: str
    at_least: float


class Measurement(msgspec.Struct, frozen=True):
    """One thing that several contestants do with the same number of jobs."""

    name: str
    says: str
    database: Database
    jobs: int
    contestants: tuple[Contestant, ...]
    targets: tuple[Target, ...] = ()
    options: Options = {}
    """For every contestant; its own options win."""


class Order(msgspec.Struct, frozen=True):
    """What one run is told."""

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


class Lap(msgspec.Struct, frozen=True):
    """What one run answers."""

    jobs: int
    seconds: float
    steal: float
    """The share of the machine's time that its host gave to others."""
    cpu_seconds: float
    """Of the contestant's own process; the database's are not in it."""

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds


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
