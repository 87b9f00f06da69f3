"""The measurements of the server; `bench.plan` has all others."""

from __future__ import annotations

from typing import Final

from bench.values import RATE, Contestant, Database, Measurement, Target

CONNECTIONS: Final = 16
# Half of what the framework alone does, so many jobs a second in batches, and so many pushes.
PUBLISH: Final = 0.5
AUTHORIZED: Final = 0.45
BATCH: Final = 20_000
PUSH: Final = 0.5
PUSHES: Final = 2_000


def _publish(database: Database) -> Measurement:
    return Measurement(
        f"{database}.server.publish",
        "publish over HTTP, a key on each; 16 connections that are kept alive",
        database,
        jobs=20_000,
        contestants=(
            Contestant("onefold", "server_publish.ours"),
            Contestant("onefold, with an API key", "server_publish.ours", {"authorized": 1}),
            Contestant("bare", "server_publish.bare"),
        ),
        targets=(
            Target("onefold", "bare", PUBLISH),
            Target("onefold, with an API key", "bare", AUTHORIZED),
        ),
        options={"connections": CONNECTIONS},
    )


def _batch(database: Database) -> Measurement:
    return Measurement(
        f"{database}.server.batch",
        "publish over HTTP, 1,000 jobs a request, a key on each job; 2 connections",
        database,
        jobs=100_000,
        contestants=(Contestant("onefold", "server_publish.ours"),),
        targets=(Target("onefold", None, BATCH, reading=RATE),),
        options={"connections": 2, "batch": 1_000},
    )


def _push(database: Database) -> Measurement:
    return Measurement(
        f"{database}.server.push",
        "push to an endpoint of this machine",
        database,
        jobs=10_000,
        contestants=(
            Contestant("onefold", "server_push.ours"),
            Contestant("bare", "server_push.bare"),
        ),
        # So many a second, or this part of what the bare client does: either will do.
        targets=(Target("onefold", None, PUSHES), Target("onefold", "bare", PUSH)),
    )


SERVER: Final = (
    _publish("postgres"),
    _publish("sqlite"),
    _batch("postgres"),
    _batch("sqlite"),
    _push("postgres"),
    _push("sqlite"),
)
