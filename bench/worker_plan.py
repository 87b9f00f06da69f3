"""The measurements of real worker processes; `bench.plan` has all others."""

from __future__ import annotations

from typing import Final

from bench.values import RATE, Contestant, Measurement, Options, Target

MILLION: Final = 1_000_000
CONCURRENCY: Final = 100
"""Jobs that Onefold runs at once; as many as PgQueuer takes at a time."""
SECONDS: Final = 60
"""How long an idle worker is watched."""

ONEFOLD: Final[Options] = {"worker": "ours_worker", "concurrency": CONCURRENCY}
PGQUEUER: Final[Options] = {"worker": "pgqueuer_worker", "batch": 100}
# More at once makes neither faster: measured with 1, 5 and 50, and with 1, 2, 4 and 8.
PROCRASTINATE: Final[Options] = {"worker": "procrastinate_worker", "concurrency": 5}
HUEY: Final[Options] = {"worker": "huey_worker", "threads": 4}
TWO: Final[Options] = {"processes": 2}

WAITED: Final = ("p50 ms", "p99 ms", "p99 / p50")
MEMORY: Final = ("MB after a fifth", "MB at the end", "growth")
USED: Final = ("CPU %", "MB")

WORKERS: Final = (
    Measurement(
        "postgres.worker",
        "no-op jobs handled by worker processes",
        "postgres",
        jobs=20_000,
        contestants=(
            Contestant("onefold", "workers.drain", ONEFOLD),
            Contestant("pgqueuer", "workers.drain", PGQUEUER),
            Contestant("onefold, 2 processes", "workers.drain", ONEFOLD | TWO),
            Contestant("pgqueuer, 2 processes", "workers.drain", PGQUEUER | TWO),
            # It needs a minute for 20,000.
            Contestant("procrastinate", "workers.drain", PROCRASTINATE | {"one_in": 10}),
            Contestant("onefold, take + finish", "ours.take"),
        ),
        targets=(
            Target("onefold", "pgqueuer", 2.2),
            Target("onefold, 2 processes", "pgqueuer, 2 processes", 1.7),
            Target("onefold", "onefold, take + finish", 0.75),
            Target("onefold", "procrastinate", 30),
        ),
    ),
    Measurement(
        "postgres.worker.finished",
        "no-op jobs handled by a worker process, beside a million finished jobs",
        "postgres",
        jobs=20_000,
        contestants=(
            Contestant("empty", "workers.drain", ONEFOLD),
            Contestant("finished", "workers.drain", ONEFOLD | {"ballast": "finished"}),
        ),
        targets=(Target("finished", "empty", 0.9),),
        options={"ballast_jobs": MILLION},
    ),
    Measurement(
        "postgres.worker.memory",
        "the memory of a worker process, after a fifth of the jobs and at the end",
        "postgres",
        jobs=200_000,
        contestants=(
            Contestant("onefold", "workers.drain", ONEFOLD),
            Contestant("pgqueuer", "workers.drain", PGQUEUER),
        ),
        targets=(Target("onefold", None, at_most=1.05, reading="growth"),),
        readings=(RATE, *MEMORY),
    ),
    Measurement(
        "postgres.latency",
        "from the call of enqueue to the start of the handler, on an idle queue",
        "postgres",
        jobs=400,
        contestants=(
            Contestant("onefold", "workers.latency", ONEFOLD),
            Contestant("pgqueuer", "workers.latency", PGQUEUER),
            Contestant("procrastinate", "workers.latency", PROCRASTINATE),
        ),
        targets=(
            Target("onefold", "pgqueuer", at_most=1, reading="p50 ms"),
            Target("onefold", None, at_most=2.5, reading="p99 / p50"),
        ),
        readings=WAITED,
    ),
    Measurement(
        "postgres.idle",
        f"a worker process that has nothing to do, for {SECONDS} seconds",
        "postgres",
        jobs=0,
        contestants=(
            Contestant("onefold", "workers.idle", ONEFOLD),
            Contestant("pgqueuer", "workers.idle", PGQUEUER),
            Contestant("procrastinate", "workers.idle", PROCRASTINATE),
        ),
        targets=(
            Target("onefold", None, at_most=0.3, reading="queries/s"),
            Target("onefold", None, at_most=1, reading="CPU %"),
        ),
        options={"seconds": SECONDS},
        readings=("queries/s", *USED),
    ),
    Measurement(
        "sqlite.worker",
        "no-op jobs handled by a worker process",
        "sqlite",
        jobs=20_000,
        contestants=(
            Contestant("onefold", "workers.drain", ONEFOLD),
            Contestant("huey", "workers.drain", HUEY | {"one_in": 2}),
        ),
        targets=(Target("onefold", "huey", 5),),
    ),
    Measurement(
        "sqlite.idle",
        f"a worker process that has nothing to do, for {SECONDS} seconds",
        "sqlite",
        jobs=0,
        contestants=(
            Contestant("onefold", "workers.idle", ONEFOLD),
            Contestant("huey", "workers.idle", HUEY),
        ),
        targets=(Target("onefold", None, at_most=1, reading="CPU %"),),
        options={"seconds": SECONDS},
        readings=USED,
    ),
)
