"""Take a lock named by the job: for work in many commits that two runs must not do at once.

A worker that was paused beyond its lease may still be running when the next one begins. Choose
`run.lock` if the two would interfere. The second run then receives `Busy`, and the job is deferred
until the lock has ended, without using up an attempt.

A lock is a lease, and its holder may be paused too. So each commit checks that the lock is still
held: `within(connection).guard(lock)`. A lock stores no progress: a run that has acquired it first
checks what earlier runs have left.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from examples.handlers.app import onefold, sql, transaction
from onefold import Run

if TYPE_CHECKING:
    from onefold import Enqueued

TABLES: Final = (
    "create table if not exists report (day text primary key)",
    "create table if not exists report_line (day text not null, region text not null)",
)

REGIONS: Final = ("north", "south", "west")
LEASE: Final = timedelta(seconds=2)
"""Longer than any part of the work: each part starts by renewing the lock."""


@onefold.job
def build_report(run: Run, day: str) -> None:
    """Build the report of a day, one region after the other."""
    with run.lock(f"build_report:{run.id}", ttl=LEASE) as lock:
        with transaction() as connection:
            onefold.within(connection).guard(lock)
            if connection.execute(sql("select 1 from report where day = ?"), [day]).fetchone():
                return
            connection.execute(sql("delete from report_line where day = ?"), [day])
        for region in REGIONS:
            lock.renew()
            with transaction() as connection:
                onefold.within(connection).guard(lock)
                connection.execute(sql("insert into report_line values (?, ?)"), [day, region])
        with transaction() as connection:
            onefold.within(connection).guard(lock)
            connection.execute(sql("insert into report values (?)"), [day])


def enqueue() -> list[Enqueued[Any]]:
    """Enqueue two days; the first again while its report may be in progress."""
    return [
        build_report.using(unique_key=day).enqueue(day)
        for day in ("2030-01-01", "2030-01-02", "2030-01-01")
    ]


def tell() -> list[str]:
    """Describe the result, line by line."""
    with transaction() as connection:
        rows = connection.execute(
            "select day, count(*) from report join report_line using (day)"
            " group by day order by day"
        )
        return [f"the report of {day} has {lines} lines" for day, lines in rows]
