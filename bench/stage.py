"""Prepares PostgreSQL before a measurement: a database, tables, jobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from bench.payloads import KIND, payload
from onefold import Onefold

if TYPE_CHECKING:
    from bench.values import Order

LOAD: Final = """
insert into onefold.job
    (shard, id, tenant, queue, kind, state, priority, run_at, max_attempts, payload, created_at,
     attempt, fence, ended_at, keep_until)
select
    0, uuidv7(), '', 'default', %(kind)s, %(state)s, %(priority)s, clock.now + %(offset)s + n, 8,
    format('{"user":%%s,"template":"welcome","note":"%%s"}', 10000000 + n, repeat('n', %(note)s)),
    clock.now,
    case when %(state)s = 0 then 0 else 1 end, case when %(state)s = 0 then 0 else 1 end,
    case when %(state)s = 0 then null else clock.now end,
    case when %(state)s = 0 then null else clock.now + 86400000000 end
from
    (select (extract(epoch from statement_timestamp()) * 1000000)::bigint) as clock (now),
    generate_series(1, %(count)s) as n
"""
STORED: Final = "select count(*) from onefold.job"
FINISHED: Final = f"select count(*) from onefold.job where state = 2 and kind = '{KIND}'"
SETTLED: Final = "select count(*) from onefold.claim where state = 1 and result is not null"
QUEUED: Final = 0
COMPLETED: Final = 2
HOUR: Final = 3_600_000_000
"""In microseconds."""

# What else is in the table: the state of those jobs, their priority, and when they are due. Those
# that are due come after the jobs that are taken, and those scheduled ahead have a better priority.
BALLAST: Final = {
    "finished": (COMPLETED, 0, -HOUR),
    "waiting": (QUEUED, 0, -HOUR),
    "scheduled": (QUEUED, -1, HOUR),
}


def new_database(url: str, name: str) -> str:
    """The URL of a database that is new; an older one of that name is dropped."""
    with psycopg.connect(url, autocommit=True) as connection:
        identifier = sql.Identifier(name)
        connection.execute(sql.SQL("drop database if exists {} with (force)").format(identifier))
        connection.execute(sql.SQL("create database {}").format(identifier))
    return url_of(url, name)


def url_of(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def onefold_database(order: Order) -> str:
    """The URL of a new database with Onefold's tables."""
    url = new_database(order.url, "bench_onefold")
    with Onefold(url) as onefold:
        onefold.migrate()
    return url


def loaded_database(order: Order, count: int) -> str:
    """A database with `count` jobs to take, and what else the order wants in the table.

    The ballast is loaded once, and stays: what a run has taken is replaced before the next.
    """
    ballast, size = order.word("ballast"), order.number("ballast_jobs")
    name = f"bench_take_{ballast or 'empty'}"
    url = url_of(order.url, name)
    if not ballast or not _has(order.url, name):
        new_database(order.url, name)
        with Onefold(url) as onefold:
            onefold.migrate()
        if ballast:
            state, priority, offset = BALLAST[ballast]
            _load(url, "ballast", size, state=state, priority=priority, offset=offset)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("delete from onefold.job where kind = %s", [KIND])
    _load(url, KIND, count, state=QUEUED, priority=0, offset=-2 * HOUR)
    return url


def _has(url: str, name: str) -> bool:
    with psycopg.connect(url) as connection:
        query = "select 1 from pg_database where datname = %s"
        return connection.execute(query, [name]).fetchone() is not None


def _load(url: str, kind: str, count: int, *, state: int, priority: int, offset: int) -> None:
    values = {
        "kind": kind,
        "count": count,
        "state": state,
        "priority": priority,
        "offset": offset,
        "note": len(payload(0)["note"]),
    }
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(LOAD, values)
        connection.execute("vacuum analyze onefold.job")


def settle(url: str) -> None:
    """Write out what is dirty, so that no run pays for what was before it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("checkpoint")


def analyze(url: str) -> None:
    """Let the planner know what is in the tables: in production it would."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum analyze")


def log_statements(url: str) -> Path:
    """Let the server log all that is asked of a database from the next connection on; where to."""
    name = urlsplit(url).path.removeprefix("/")
    command = sql.SQL("alter database {} set log_statement = 'all'").format(sql.Identifier(name))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(command)
        row = connection.execute("show data_directory").fetchone()
    assert row is not None
    return Path(row[0]) / "log"


def statements(log: str, url: str) -> int:
    """How many were asked of a database, as its log has it."""
    name = re.escape(urlsplit(url).path.removeprefix("/"))
    return len(re.findall(rf"^.* \[\d+\] {name} LOG:  (?:statement:|execute) ", log, re.MULTILINE))


def expect(url: str, query: str, wanted: int) -> None:
    """A contestant that has not done all of its work has no figure."""
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    found = None if row is None else row[0]
    if found != wanted:
        raise RuntimeError(f"{wanted} jobs were expected, and there are {found}: {query}")
