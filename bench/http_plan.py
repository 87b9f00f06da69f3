"""The measurements of keyed requests; `bench.plan` has all others."""

from __future__ import annotations

from typing import Final

from bench.values import Contestant, Measurement, Target

# Of an insert and an update; of a select: 1.3 times its time; of nothing: 3 % more.
FIRST: Final = 0.6
FIRST_BY_POOL: Final = 0.55
FIRST_ON_SQLITE: Final = 0.5
REPLAY: Final = 0.77
UNKEYED: Final = 0.97

OURS: Final = (
    Contestant("onefold", "http_ours.first"),
    Contestant("onefold, leased", "http_ours.first", {"mode": "leased"}),
)
POOL: Final = Contestant("onefold, the application's pool", "http_ours.first", {"mode": "pool"})

HTTP: Final = (
    Measurement(
        "postgres.http.first",
        "a keyed request for the first time, one after the other",
        "postgres",
        jobs=3_000,
        contestants=(*OURS, POOL, Contestant("raw", "http_raw.first")),
        targets=(Target("onefold", "raw", FIRST), Target(POOL.name, "raw", FIRST_BY_POOL)),
    ),
    Measurement(
        "postgres.http.replay",
        "a keyed request that has been answered before",
        "postgres",
        jobs=5_000,
        contestants=(
            Contestant("onefold", "http_ours.replay"),
            Contestant("raw", "http_raw.replay"),
        ),
        targets=(Target("onefold", "raw", REPLAY),),
    ),
    Measurement(
        "sqlite.http.first",
        "a keyed request for the first time, one after the other",
        "sqlite",
        jobs=3_000,
        contestants=(*OURS, Contestant("raw", "http_raw.sqlite_first")),
        targets=(Target("onefold", "raw", FIRST_ON_SQLITE),),
    ),
    Measurement(
        "sqlite.http.replay",
        "a keyed request that has been answered before",
        "sqlite",
        jobs=5_000,
        contestants=(
            Contestant("onefold", "http_ours.replay"),
            Contestant("raw", "http_raw.sqlite_replay"),
        ),
        targets=(Target("onefold", "raw", REPLAY),),
    ),
    Measurement(
        "sqlite.http.no-key",
        "a request without a key, to a route that has nothing to do with keys",
        "sqlite",
        jobs=40_000,
        contestants=(
            Contestant("onefold, keys optional", "http_ours.without"),
            Contestant("onefold, keys required", "http_ours.without", {"required": 1}),
            Contestant("bare", "http_ours.bare"),
        ),
        targets=(
            Target("onefold, keys optional", "bare", UNKEYED),
            Target("onefold, keys required", "bare", UNKEYED),
        ),
    ),
)
