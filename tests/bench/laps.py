"""Measurements and runs to do arithmetic on."""

from __future__ import annotations

import msgspec

from bench.values import Contestant, Lap, Measurement, Run, Target
from bench.verdict import ENOUGH

ONEFOLD = Contestant("onefold", "ours.bulk")
RAW = Contestant("raw", "raw_postgres.bulk")
PEER = Contestant("peer", "pgqueuer_peer.bulk")


def measurement(*targets: Target) -> Measurement:
    return Measurement(
        "postgres.enqueue.bulk",
        "bulk enqueue",
        "postgres",
        jobs=100,
        contestants=(ONEFOLD, RAW, PEER),
        targets=targets,
    )


def lap(rate: float, *, steal: float = 0.0) -> Lap:
    return Lap(jobs=100, seconds=100 / rate, steal=steal, cpu_seconds=0.0)


def costly(contestant: Contestant, *, turn: int, **used: float) -> Run:
    """A run that has used something."""
    found = msgspec.structs.replace(lap(100), **used)
    return msgspec.structs.replace(run(contestant, 100, turn=turn), lap=found)


def quiet_runs(contestant: Contestant, rate: float) -> list[Run]:
    """As many as are enough."""
    return [run(contestant, rate, turn=turn) for turn in range(ENOUGH)]


def run(contestant: Contestant, rate: float, *, turn: int = 0, set_aside: bool = False) -> Run:
    return Run(
        "postgres.enqueue.bulk",
        contestant.name,
        turn,
        lap(rate),
        load=0.0,
        set_aside=set_aside,
    )


def marked(contestant: Contestant, value: float) -> Run:
    """A run that has found something besides its rate."""
    found = msgspec.structs.replace(lap(100), marks={"p50 ms": value})
    return msgspec.structs.replace(run(contestant, 100), lap=found)
