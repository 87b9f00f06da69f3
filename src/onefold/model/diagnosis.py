"""Diagnoses of `onefold doctor`: what is right, what is not, and how to fix it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from onefold.model.statistics import alive_workers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onefold.model.statistics import WorkerStatus

Level: TypeAlias = Literal["ok", "warning", "problem"]

SKEW: Final = timedelta(seconds=1)
"""More is a warning."""
LARGE_SKEW: Final = timedelta(minutes=1)
LOCK_TIMEOUT: Final = timedelta(milliseconds=800)
"""How long our transactions wait for a lock on PostgreSQL."""
LONG_TRANSACTION: Final = timedelta(minutes=5)
MANY_CONNECTIONS: Final = 0.8
MANY_DEAD_ROWS: Final = 100_000
GIGABYTE: Final = 1024**3
LITTLE_SPACE: Final = GIGABYTE
NO_SPACE: Final = GIGABYTE // 10
LARGE_LOG: Final = GIGABYTE // 4


class Diagnosis(msgspec.Struct, frozen=True):
    """One fact about an installation."""

    check: str
    level: Level
    message: str
    fix: str | None = None
    """What to do about it; None if nothing is wrong."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What no statement tells about a database."""

    pooled: bool = False
    """True: a pooler in transaction mode is between."""
    listens: bool | None = None
    """Whether a notification arrives; None if it was not tried."""
    free_bytes: int | None = None
    """On the disk of the file; None if the database is elsewhere."""
    log_bytes: int = 0
    """The size of the write-ahead log of the file."""


def index_findings(
    expected: frozenset[str], found: Mapping[str, bool], schema: str
) -> Iterator[Diagnosis]:
    """Indexes that are missing or not valid."""
    missing = sorted(expected - found.keys())
    invalid = sorted(name for name in expected & found.keys() if not found[name])
    for name in missing:
        yield Diagnosis(
            "indexes",
            "problem",
            f"The index {name} is missing.",
            "Create it as the output of `onefold migrate --sql` does.",
        )
    for name in invalid:
        yield Diagnosis(
            "indexes",
            "problem",
            f"The index {name} is not valid, so no query uses it.",
            f'Run: reindex index concurrently "{schema}".{name}',
        )
    if not missing and not invalid:
        yield Diagnosis("indexes", "ok", f"All {len(expected)} indexes exist and are valid.")


def clock_finding(skew: timedelta) -> Diagnosis:
    """`skew` is how far the clock of this machine is ahead of the database's."""
    amount = abs(skew)
    if amount <= SKEW:
        return Diagnosis("clock", "ok", "This machine and the database have the same time.")
    word = "ahead of" if skew > timedelta(0) else "behind"
    return Diagnosis(
        "clock",
        "problem" if amount > LARGE_SKEW else "warning",
        f"The clock of this machine is {amount.total_seconds():.1f} s {word} the database.",
        "Synchronize both clocks, for example with chrony.",
    )


def worker_findings(
    workers: Sequence[WorkerStatus], unserved: Mapping[str, int]
) -> Iterator[Diagnosis]:
    """Which workers run, which have vanished lately, and due jobs that no worker takes."""
    alive, gone = alive_workers(workers), sum(not worker.alive for worker in workers)
    if not any(worker.alive for worker in workers):
        yield Diagnosis("workers", "warning", "No worker runs: jobs wait.", START)
    elif unserved:
        number = sum(unserved.values())
        yield Diagnosis(
            "workers",
            "warning",
            f"{alive}, and none takes from {', '.join(unserved)}: {number} due"
            f" job{'s wait' if number > 1 else ' waits'}.",
            START,
        )
    elif not any(worker.alive and worker.kinds is not None for worker in workers):
        text = f"{alive}: no worker runs for queues without an endpoint, and no job waits there."
        yield Diagnosis("workers", "ok", text)
    elif not gone:
        yield Diagnosis("workers", "ok", f"{alive} alive.")
    if gone:
        yield Diagnosis(
            "workers",
            "warning",
            f"{alive} alive; {gone} vanished in the last hour without stopping.",
            "Look at their logs, and for kills by the system (dmesg).",
        )


START: Final = "Start one: onefold worker MODULE:APP, or onefold serve for endpoints."


def postgres_findings(facts: Mapping[str, str], near: Surroundings) -> Iterator[Diagnosis]:
    """Settings and activity of a PostgreSQL server."""
    yield from _durability(facts)
    deadlock = timedelta(milliseconds=int(facts["deadlock_timeout"]))
    if deadlock <= LOCK_TIMEOUT:
        yield Diagnosis(
            "locks",
            "warning",
            f"deadlock_timeout is {_short(deadlock)}, and Onefold waits {_short(LOCK_TIMEOUT)} for"
            " a lock: a deadlock may end your transaction instead of one that Onefold repeats.",
            "Set deadlock_timeout to 1s, its default.",
        )
    else:
        yield Diagnosis("locks", "ok", f"deadlock_timeout is {_short(deadlock)}.")
    yield _connections(int(facts["connections"]), int(facts["max_connections"]))
    yield _transactions(facts.get("transaction"))
    yield _vacuum(facts)
    yield _wake_up(near)


def _durability(facts: Mapping[str, str]) -> Iterator[Diagnosis]:
    if facts["standby"] == "true":
        yield Diagnosis(
            "durability",
            "problem",
            "This server is a standby, and rejects writes.",
            "Use the URL of the primary.",
        )
    off = [
        name for name in ("fsync", "full_page_writes", "synchronous_commit") if facts[name] == "off"
    ]
    for name in off:
        yield Diagnosis(
            "durability",
            "problem",
            f"{name} is off: a crash of the server can lose jobs that were confirmed.",
            f"Set {name} to on.",
        )
    if not off:
        mode = facts["synchronous_commit"]
        yield Diagnosis("durability", "ok", f"Commits are durable (synchronous_commit is {mode}).")


def _connections(used: int, most: int) -> Diagnosis:
    text = f"{used} of {most} connections are in use."
    if used < most * MANY_CONNECTIONS:
        return Diagnosis("connections", "ok", text)
    return Diagnosis(
        "connections", "warning", text, "Raise max_connections, or put a pooler in between."
    )


def _transactions(oldest: str | None) -> Diagnosis:
    seconds, _, pid = (oldest or "0 ").partition(" ")
    age = timedelta(seconds=int(seconds))
    if age < LONG_TRANSACTION:
        return Diagnosis("transactions", "ok", "No transaction has been open for long.")
    return Diagnosis(
        "transactions",
        "warning",
        f"A transaction has been open for {age} (process {pid}): rows that are deleted meanwhile"
        " cannot be removed, and the queue becomes slower.",
        f"End it in its application, or run: select pg_terminate_backend({pid})",
    )


def _vacuum(facts: Mapping[str, str]) -> Diagnosis:
    dead, _, live = facts.get("dead rows", "0 0").partition(" ")
    if facts["autovacuum"] == "off" or "unvacuumed" in facts:
        where = "on the server" if facts["autovacuum"] == "off" else "for the table job"
        return Diagnosis(
            "vacuum",
            "problem",
            f"autovacuum is off {where}: tables grow, and the queue becomes slower.",
            f"Switch autovacuum on {where}.",
        )
    if int(dead) > max(MANY_DEAD_ROWS, int(live)):
        return Diagnosis(
            "vacuum",
            "warning",
            f"The table job has {dead} dead rows and {live} live ones: autovacuum is behind.",
            "End long transactions, or set autovacuum_vacuum_cost_limit higher.",
        )
    return Diagnosis("vacuum", "ok", "autovacuum is on.")


def _wake_up(near: Surroundings) -> Diagnosis:
    if near.pooled:
        return Diagnosis(
            "wake-up",
            "warning",
            "A pooler in transaction mode is in between: LISTEN does not work, and workers look"
            " for jobs about once a second.",
            "If that is too slow, give workers the URL of PostgreSQL itself.",
        )
    if near.listens:
        return Diagnosis("wake-up", "ok", "LISTEN works: workers are woken at once.")
    return Diagnosis(
        "wake-up",
        "warning",
        "A notification did not arrive: workers look for jobs every few seconds.",
        "Check the proxies between this machine and PostgreSQL.",
    )


def sqlite_findings(facts: Mapping[str, str], near: Surroundings) -> Iterator[Diagnosis]:
    """Settings and surroundings of a SQLite file."""
    if "damage" in facts:
        yield Diagnosis(
            "file",
            "problem",
            f"The file is damaged: {facts['damage']}",
            "Stop all processes, and restore a backup.",
        )
    else:
        yield Diagnosis("file", "ok", "The file is intact.")
    if facts["journal_mode"] == "wal":
        yield Diagnosis("durability", "ok", "Commits are durable (WAL, synchronous is full).")
    else:
        yield Diagnosis(
            "durability",
            "problem",
            f"The journal mode is {facts['journal_mode']}, not WAL: readers and writers block each"
            " other.",
            "Move the file to a local disk: WAL needs shared memory, which network file systems"
            " do not have.",
        )
    yield _log(near.log_bytes)
    if near.free_bytes is not None:
        yield _space(near.free_bytes)


def _log(size: int) -> Diagnosis:
    if size <= LARGE_LOG:
        return Diagnosis("log", "ok", "The write-ahead log is small.")
    return Diagnosis(
        "log",
        "warning",
        f"The write-ahead log has {_size(size)}: a reader keeps it from being written back.",
        "End processes that read the file in a long transaction.",
    )


def _space(free: int) -> Diagnosis:
    text = f"{_size(free)} of the disk are free."
    if free >= LITTLE_SPACE:
        return Diagnosis("disk", "ok", text)
    level: Level = "problem" if free < NO_SPACE else "warning"
    return Diagnosis("disk", level, text, "Free some space: a full disk rejects new jobs.")


def _short(span: timedelta) -> str:
    return f"{span.total_seconds() * 1000:.0f} ms"


def _size(size: int) -> str:
    return f"{size / GIGABYTE:.1f} GB"
