"""The overview: charts of the last minutes or of the last day, failures, queues, workers."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.model.checks import shown
from onefold.model.job import Job
from onefold.model.statistics import unserved
from onefold.server.dashboard.charts import GAP, Chart, Series, count_text
from onefold.server.dashboard.page import Page, PageRequest, PageTable
from onefold.server.dashboard.rendering import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onefold.model.queue import Queue
    from onefold.model.statistics import Statistics, StatisticsBucket

PAGES: Final = PageTable()

FAILED: Final = 100
"""Failed jobs of a state that are read, at most."""
UNITS: Final = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}
LISTED: Final = 5
"""Queues and workers that are listed."""


class Period(msgspec.Struct, frozen=True):
    """A time that the charts can show."""

    label: str
    last: timedelta
    width: timedelta
    labels: int
    """Buckets between two labels."""


PERIODS: Final = {
    "15m": Period("15 minutes", timedelta(minutes=15), timedelta(minutes=1), 5),
    "24h": Period("24 hours", timedelta(hours=24), timedelta(minutes=30), 12),
}


class FailingKind(msgspec.Struct):
    """The failed jobs of a kind."""

    kind: str
    last: Job
    """The newest one."""
    retrying: int = 0
    dead: int = 0


@PAGES.get("/")
def show_overview(request: PageRequest) -> Page:
    """What happens now, and what needs attention."""
    chosen = request.query.get("last", "15m")
    period = PERIODS.get(chosen) or PERIODS["15m"]
    found = request.calls.statistics.read(last=period.last, width=period.width)
    queues = tuple(request.calls.queues.find())
    tenant = request.session.tenant
    workers = () if tenant else request.onefold.workers.find()
    is_empty = not any(_counts(found)) and not queues and not request.calls.find(limit=1).jobs
    values = {
        "periods": PERIODS,
        "chosen": chosen if chosen in PERIODS else "15m",
        "charts": charts(found, period, queues),
        "failing": failing_kinds(request),
        "queues": largest(queues, tenant),
        "workers": sorted(workers, key=lambda one: (not one.alive, -one.running))[:LISTED],
        "alive": sum(one.alive and one.kinds is not None for one in workers),
        "pushing": sum(one.alive and one.kinds is None for one in workers),
        "unserved": unserved(queues, workers),
        "is_operator": not tenant,
        "is_empty": is_empty,
        "address": _address(request),
        # A tenant has no access to the database of the operator.
        "database": "sqlite:///jobs.db" if tenant else request.onefold.context.database.label,
    }
    return Page("overview.html", values)


def charts(found: Statistics, period: Period, queues: Iterable[Queue]) -> tuple[Chart, ...]:
    """The five charts."""
    total = found.total
    waiting = sum(one.counts.ready for one in queues if one.counts)

    def made(name: str, title: str, figure: str, note: str, *series: Series) -> Chart:
        is_line = name in {"latency", "backlog"}
        return Chart(
            name=name,
            title=title,
            figure=figure,
            note=note,
            kind="lines" if is_line else "bars",
            unit="time" if name == "latency" else "count",
            series=series,
            times=tuple(bucket.at for bucket in found.buckets),
            labels=period.labels,
        )

    def of(label: str, colour: str, value: Callable[[StatisticsBucket], float | None]) -> Series:
        return Series(label, colour, tuple(map(value, found.buckets)))

    return (
        made(
            "completed",
            "Completed",
            f"{total.completed:,}",
            rate(total.completed, period.last),
            of("Completed", "accent", lambda one: one.completed),
        ),
        made(
            "duplicates",
            "Duplicates suppressed",
            f"{total.duplicates:,}",
            "requests that a key recognised",
            of("Suppressed", "green", lambda one: one.duplicates),
        ),
        made(
            "latency",
            "Latency",
            duration(total.waited_mean) if total.waited_mean is not None else GAP,
            f"waited on average, at most {duration(total.waited_longest)};"
            f" then ran for {duration(total.ran_mean)}"
            if total.waited_mean is not None
            else "no job ran in this time",
            of("Waited", "blue", lambda one: _seconds(one.waited_mean)),
            of("Ran", "violet", lambda one: _seconds(one.ran_mean)),
        ),
        made(
            "backlog",
            "Backlog",
            f"{waiting:,}",
            "jobs are due now" + ("" if total.backlog is None else f", at most {total.backlog:,}"),
            of("Due jobs", "blue", lambda one: one.backlog),
        ),
        made(
            "failures",
            "Failures",
            count_text(total.retried + total.dead),
            f"{total.dead:,} dead, {total.retried:,} retried",
            of("Dead", "red", lambda one: one.dead),
            of("Retried", "amber", lambda one: one.retried),
        ),
    )


def rate(jobs: int, last: timedelta) -> str:
    """How many jobs were completed per minute; or per hour or day, if that is less than one."""
    for unit, length in UNITS.items():
        if jobs * length >= last:
            return f"{jobs * length / last:,.1f} jobs per {unit}"
    return "no job in this time"


def failing_kinds(request: PageRequest) -> list[FailingKind]:
    """The kinds of the newest failed jobs, with their last error."""
    find = partial(request.calls.find, newest_first=True, limit=FAILED)
    jobs = sorted([*find(state="retrying"), *find(state="dead")], key=lambda job: job.id)
    found: dict[str, FailingKind] = {}
    for job in reversed(jobs):
        kind = found.setdefault(job.kind, FailingKind(job.kind, job))
        if job.state == "dead":
            kind.dead += 1
        else:
            kind.retrying += 1
    return list(found.values())


def largest(queues: Iterable[Queue], tenant: str) -> list[tuple[str, Queue]]:
    """The queues with the most due jobs, by the names that the visitor knows."""
    waiting = [one for one in queues if one.counts and one.counts.ready]
    waiting.sort(key=lambda one: -one.counts.ready if one.counts else 0)
    return [(shown(tenant, one.full_name), one) for one in waiting[:LISTED]]


def _counts(found: Statistics) -> tuple[int, ...]:
    total = found.total
    return total.completed, total.retried, total.dead, total.deferred, total.duplicates


def _seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()


def _address(request: PageRequest) -> str | None:
    """The address of the API for examples; None if the dashboard is in an application."""
    if not request.session.own:
        return None
    scheme = "https" if request.incoming.secure else "http"
    return f"{scheme}://{request.incoming.http.value('host')}{request.incoming.root}"
