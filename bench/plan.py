"""The measurements, their contestants, and the ratios that are wanted.

To add one is to add data here, and a function to `bench.contestants` where a contestant does
something new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from bench.duplicate_plan import DUPLICATES
from bench.http_plan import HTTP
from bench.server_plan import SERVER
from bench.values import Contestant, Measurement, Target
from bench.worker_plan import MILLION, WORKERS

if TYPE_CHECKING:
    from collections.abc import Sequence

POOL: Final = 10
"""Connections for many callers: as many as Onefold opens at most, and asyncpg by default."""
LARGER_POOL: Final = 32
TAKEN: Final = 200
"""Jobs a take; sizes are multiples of it."""


def _bulk(name: str, says: str, batch: int) -> Measurement:
    return Measurement(
        name,
        says,
        "postgres",
        jobs=100_000,
        contestants=(
            Contestant("onefold", "ours.bulk"),
            Contestant("raw", "raw_postgres.bulk"),
            Contestant("raw, from payloads", "raw_postgres.bulk_from_payloads"),
            Contestant("raw, literals", "raw_postgres.bulk_literals"),
            Contestant("pgqueuer", "pgqueuer_peer.bulk"),
            Contestant("procrastinate", "procrastinate_peer.bulk"),
        ),
        targets=(
            Target("onefold", "pgqueuer", 1.5),
            Target("onefold", "raw", 0.85),
            Target("onefold", "raw, literals", 0.85),
        ),
        options={"batch": batch},
    )


def _beside_ballast(ballast: str, says: str) -> Measurement:
    return Measurement(
        f"postgres.take.{ballast}",
        says,
        "postgres",
        jobs=40_000,
        contestants=(
            Contestant("empty", "ours.take"),
            Contestant(ballast, "ours.take", {"ballast": ballast}),
        ),
        targets=(Target(ballast, "empty", 0.9),),
        options={"ballast_jobs": MILLION},
    )


MEASUREMENTS: Final = (
    _bulk("postgres.enqueue.bulk", "bulk enqueue, 1,000 jobs a call", 1_000),
    _bulk("postgres.enqueue.bulk-at-once", "bulk enqueue, all jobs in one call", 0),
    Measurement(
        "postgres.enqueue.keyed",
        "bulk enqueue with keys, half of them duplicates, 1,000 jobs a call",
        "postgres",
        jobs=100_000,
        contestants=(
            Contestant("onefold", "ours.keyed"),
            Contestant("pgqueuer", "pgqueuer_peer.keyed"),
        ),
        targets=(Target("onefold", "pgqueuer", 1.0),),
        options={"batch": 1_000},
    ),
    Measurement(
        "postgres.enqueue.concurrent",
        "64 callers in one process, each one job at a time",
        "postgres",
        jobs=12_800,
        contestants=(
            Contestant("onefold", "ours.tasks"),
            Contestant("onefold, threads", "ours.threads"),
            Contestant("pgqueuer", "pgqueuer_peer.tasks", {"pool": POOL}),
            Contestant("pgqueuer, larger pool", "pgqueuer_peer.tasks", {"pool": LARGER_POOL}),
            Contestant("procrastinate", "procrastinate_peer.tasks", {"pool": POOL}),
        ),
        targets=(
            Target("onefold", "pgqueuer", 5.0),
            Target("onefold", "pgqueuer, larger pool", 5.0),
            Target("onefold, threads", "pgqueuer", 5.0),
        ),
    ),
    Measurement(
        "postgres.enqueue.single",
        "one job at a time, sync",
        "postgres",
        jobs=3_000,
        contestants=(
            Contestant("onefold", "ours.single"),
            Contestant("raw", "raw_postgres.single"),
            Contestant("procrastinate", "procrastinate_peer.single"),
        ),
        targets=(Target("onefold", "raw", 0.85),),
    ),
    Measurement(
        "postgres.enqueue.single-async",
        "one job at a time, async",
        "postgres",
        jobs=3_000,
        contestants=(
            Contestant("onefold", "ours.asingle"),
            Contestant("raw", "raw_postgres.asingle"),
            Contestant("pgqueuer", "pgqueuer_peer.asingle"),
            Contestant("procrastinate", "procrastinate_peer.asingle"),
        ),
        targets=(Target("onefold", "raw", 0.85),),
    ),
    Measurement(
        "postgres.take",
        "take + finish, 200 jobs a call",
        "postgres",
        jobs=40_000,
        contestants=(Contestant("onefold", "ours.take"), Contestant("raw", "raw_postgres.take")),
        targets=(Target("onefold", "raw", 0.85),),
    ),
    _beside_ballast("finished", "take + finish, beside a million finished jobs"),
    _beside_ballast("waiting", "take + finish, before a million jobs that are due"),
    _beside_ballast("scheduled", "take + finish, beside a million scheduled at a better priority"),
    Measurement(
        "sqlite.enqueue.bulk",
        "bulk enqueue, 1,000 jobs a call",
        "sqlite",
        jobs=100_000,
        contestants=(
            Contestant("onefold", "ours.bulk"),
            Contestant("raw", "raw_sqlite.bulk"),
            Contestant("raw, from payloads", "raw_sqlite.bulk_from_payloads"),
        ),
        targets=(Target("onefold", "raw", 0.7), Target("onefold", "raw, from payloads", 0.7)),
        options={"batch": 1_000},
    ),
    Measurement(
        "sqlite.enqueue.single",
        "one job at a time, sync",
        "sqlite",
        jobs=5_000,
        contestants=(
            Contestant("onefold", "ours.single"),
            Contestant("raw", "raw_sqlite.single"),
            Contestant("huey", "huey_peer.single"),
        ),
        targets=(Target("onefold", "raw", 0.85),),
    ),
    Measurement(
        "sqlite.enqueue.concurrent",
        "64 callers in one process, each one job at a time",
        "sqlite",
        jobs=6_400,
        contestants=(
            Contestant("onefold", "ours.tasks"),
            Contestant("onefold, threads", "ours.threads"),
            Contestant("huey", "huey_peer.threads"),
        ),
    ),
    Measurement(
        "sqlite.check",
        "deliveries of assert_idempotent, whose handler has a step and a transaction",
        "sqlite",
        jobs=500,
        contestants=(
            Contestant("run.transaction", "kit.check"),
            Contestant("own connection", "kit.check", {"writes": "own connection"}),
        ),
    ),
    Measurement(
        "sqlite.take",
        "take + finish, 200 jobs a call",
        "sqlite",
        jobs=40_000,
        contestants=(Contestant("onefold", "ours.take"), Contestant("raw", "raw_sqlite.take")),
        targets=(Target("onefold", "raw", 0.7),),
    ),
    *DUPLICATES,
    *WORKERS,
    *HTTP,
    *SERVER,
)


def chosen(only: str) -> list[Measurement]:
    """The measurements that one of the words chooses, which are parted by commas.

    A word that is a name chooses that one alone, another one all whose name contains it. No words
    at all choose everything.
    """
    if not only.strip():
        return list(MEASUREMENTS)
    names = {each.name for each in MEASUREMENTS}
    words = {word.strip() for word in only.split(",")} - {""}
    parts = words - names
    return [
        each
        for each in MEASUREMENTS
        if each.name in words or any(part in each.name for part in parts)
    ]


def scaled(measurements: Sequence[Measurement], scale: float) -> list[Measurement]:
    """The same with fewer jobs, or more. A million beside which jobs are taken stays a million."""
    return [
        msgspec.structs.replace(each, jobs=max(1, round(each.jobs * scale / TAKEN)) * TAKEN)
        if each.jobs
        else each
        for each in measurements
    ]
