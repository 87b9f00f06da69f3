"""Examines an installation: the database, its schema, clock, settings and surroundings."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from onefold.app.queues import Queues
from onefold.app.workers import Workers
from onefold.errors import OnefoldError
from onefold.model.diagnosis import (
    Diagnosis,
    clock_finding,
    index_findings,
    postgres_findings,
    sqlite_findings,
    worker_findings,
)
from onefold.model.statistics import unserved
from onefold.operations.doctor import examine
from onefold.operations.migrations import index_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onefold.app.context import Context


def findings(context: Context) -> Iterator[Diagnosis]:
    """All findings; the first problem with the connection or the schema is the last one."""
    database = context.database
    try:
        identity = database.identity()
        near = database.surroundings()
        started = time.time_ns()
        examined = database.transact(examine, write=False)
        took = time.time_ns() - started
        workers = Workers(context).find()
        queues = Queues(context).find()
    except OnefoldError as error:
        yield Diagnosis("database", "problem", str(error), "Then run onefold doctor again.")
        return
    facts, dialect = examined.facts, database.sql.dialect
    name = "SQLite" if dialect == "sqlite" else "PostgreSQL"
    answer = f"{name} {facts['server_version']} answers in {took / 1e6:.1f} ms."
    yield Diagnosis("database", "ok", f"{answer} ({database.label})")
    shards = "one shard" if identity.shards == 1 else f"{identity.shards} shards"
    yield Diagnosis(
        "schema",
        "ok",
        f"Schema {identity.version} is current; installation {identity.installation}, {shards}.",
    )
    yield from index_findings(index_names(dialect), examined.indexes, database.sql.schema)
    yield from worker_findings(workers, unserved(queues, workers))
    if dialect == "sqlite":
        yield from sqlite_findings(facts, near)
        return
    middle = (started + took // 2) // 1000
    yield clock_finding(timedelta(microseconds=middle - int(facts["time"])))
    yield from postgres_findings(facts, near)
