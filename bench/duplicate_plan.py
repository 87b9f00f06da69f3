"""The measurements of keys, new and known, beside the same call without one."""

from __future__ import annotations

from typing import Final

import msgspec

from bench.values import Contestant, Measurement, Options, Target

PLAIN: Final = "plain"
UNIQUE: Final[Options] = {"key": "unique_key"}
PUBLISH: Final[Options] = {"key": "idempotency_key"}
SEEN: Final[Options] = {"seen": 1}


def _unique(name: str, says: str, plays: str) -> Measurement:
    return Measurement(
        f"postgres.duplicate.{name}",
        says,
        "postgres",
        jobs=3_000,
        contestants=(
            Contestant(PLAIN, plays),
            Contestant("new", plays, UNIQUE),
            Contestant("duplicate", plays, UNIQUE | SEEN),
        ),
        targets=(Target("new", PLAIN, 0.9), Target("duplicate", PLAIN, 1.2)),
    )


POSTGRES: Final = (
    _unique("unique", "one job at a time with a unique key, sync", "ours.single"),
    _unique("unique-async", "one job at a time with a unique key, async", "ours.asingle"),
    Measurement(
        "postgres.duplicate.publish",
        "one job at a time with a publish key, sync",
        "postgres",
        jobs=3_000,
        contestants=(
            Contestant(PLAIN, "ours.single"),
            Contestant("new", "ours.single", PUBLISH),
            Contestant("duplicate", "ours.single", PUBLISH | SEEN),
        ),
        targets=(Target("new", PLAIN, 0.85), Target("duplicate", PLAIN, 1.2)),
    ),
    Measurement(
        "postgres.duplicate.once",
        "one `once` at a time, sync, beside plain enqueues",
        "postgres",
        jobs=3_000,
        contestants=(
            Contestant(PLAIN, "ours.single"),
            Contestant("first", "ours.once"),
            Contestant("replay", "ours.once", SEEN),
        ),
        targets=(Target("first", PLAIN), Target("replay", PLAIN, 1.5)),
    ),
    Measurement(
        "postgres.duplicate.batch",
        "bulk enqueue with unique keys, 1,000 jobs a call",
        "postgres",
        jobs=50_000,
        contestants=(
            Contestant(PLAIN, "ours.bulk"),
            Contestant("no duplicate", "ours.keyed", {"duplicates": "none"}),
            Contestant("all duplicates", "ours.keyed", {"duplicates": "all"}),
        ),
        targets=(Target("no duplicate", PLAIN, 0.8), Target("all duplicates", PLAIN)),
        options={"batch": 1_000},
    ),
)


def _on_sqlite(measurement: Measurement) -> Measurement:
    """The same on SQLite, reported without targets."""
    return msgspec.structs.replace(
        measurement,
        name=measurement.name.replace("postgres", "sqlite"),
        database="sqlite",
        targets=tuple(Target(each.contestant, each.against) for each in measurement.targets),
    )


DUPLICATES: Final = (*POSTGRES, *map(_on_sqlite, POSTGRES))
