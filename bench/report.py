"""The report: facts about the machine, tables, and JSON with every run."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.table import Table

from bench.rounds import EXTRA, TOLERATED
from bench.verdict import ENOUGH, figures, verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.values import Costs, Measurement, Run
    from bench.verdict import Verdict

PACKAGES: Final = (
    *("onefold", "psycopg", "psycopg-pool", "asyncpg", "msgspec"),
    *("pgqueuer", "procrastinate", "huey"),
)


def machine() -> dict[str, str | int]:
    """Where the figures were made."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def file_system(folder: Path) -> str:
    """What the folder lies on: in memory, a sync would cost nothing."""
    path = Path("/proc/self/mounts")
    lines = path.read_text().splitlines() if path.exists() else []
    mounts = {line.split()[1]: line.split()[2] for line in lines}
    for place in (folder.resolve(), *folder.resolve().parents):
        if str(place) in mounts:
            return mounts[str(place)]
    return "unknown"


def versions() -> dict[str, str]:
    """What was measured."""
    found = {package: _version(package) for package in PACKAGES}
    found["onefold"] += f" ({_commit()})"
    return {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version, **found}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """Which of the many versions between two releases this is."""
    git = ("git", "describe", "--always", "--dirty=, changed since")
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "not in a repository"


def facts_table(facts: dict[str, dict[str, Any]]) -> Table:
    """Machine, versions and settings, each on a line."""
    table = Table(show_header=False, box=None, padding=(0, 1))
    for topic, values in facts.items():
        text = ", ".join(f"{name} {value}" for name, value in values.items())
        table.add_row(topic, text)
    return table


def title(measurement: Measurement) -> str:
    """What is measured, in a line."""
    jobs = f"; {measurement.jobs:,} jobs" if measurement.jobs else ""
    return f"[bold]{measurement.name}[/bold]: {measurement.says}{jobs}"


def figures_table(measurement: Measurement, runs: Sequence[Run]) -> Table:
    """What each contestant made."""
    table = Table(box=None)
    table.add_column("contestant", min_width=20)
    for column in (
        *("", "median", "lowest", "highest", "runs", "set aside", "load"),
        *("client µs", "server µs", "WAL bytes"),
    ):
        table.add_column(column, justify="right")
    for each in figures(measurement, runs):
        table.add_row(
            each.contestant + (" (noisy)" if each.noisy else ""),
            each.reading,
            *(number(value) for value in (each.median, each.lowest, each.highest)),
            *(str(each.runs), str(each.set_aside), f"{each.load:.1f}"),
            *(_costs(each.costs) if each.reading == measurement.readings[0] else ()),
        )
    return table


def _costs(costs: Costs) -> list[str]:
    """What a job costs; nothing is shown of what is not known."""
    shown = (costs.client_us, costs.server_us, costs.wal_bytes)
    return ["" if value is None else number(value) for value in shown]


def number(value: float) -> str:
    """Three digits that count, or all of those before the point."""
    digits = 2 if value < 10 else 1 if value < 100 else 0  # noqa: PLR2004 -- powers of ten
    return f"{value:,.{digits}f}"


def ratios_table(measurements: Sequence[Measurement], runs: Sequence[Run]) -> Table:
    """The ratios of medians, and whether they are what is wanted."""
    table = Table(title="Ratios of medians; without an opponent: medians", title_justify="left")
    for column in ("measurement", "contestant", "against", "reading"):
        table.add_column(column)
    for column in ("ratio", "target", "reached"):
        table.add_column(column, justify="right")
    for each in measurements:
        for verdict in verdicts(each, runs):
            table.add_row(
                each.name,
                verdict.target.contestant,
                verdict.target.against or "",
                verdict.target.reading,
                f"{verdict.value:.2f}",
                verdict.target.says,
                _reached(verdict),
                style="" if verdict.reached else "yellow",
            )
    return table


def _reached(verdict: Verdict) -> str:
    """Nothing where nothing is wanted."""
    word = "yes" if verdict.reached else "no"
    noisy = " (noisy)" if verdict.noisy else ""
    return word + noisy if verdict.target.is_wanted else noisy.strip()


def document(
    facts: dict[str, dict[str, Any]],
    measurements: Sequence[Measurement],
    runs: Sequence[Run],
    failure: str | None = None,
) -> bytes:
    """All results as JSON, with every run behind a median."""
    content: dict[str, Any] = {
        **facts,
        "rule": {"tolerated_steal": TOLERATED, "extra_rounds": EXTRA, "quiet_runs": ENOUGH},
        "measurements": [
            {
                "measurement": each,
                "figures": figures(each, runs),
                "verdicts": verdicts(each, runs),
            }
            for each in measurements
        ],
        "failure": failure,
        "runs": [{"rate": run.lap.rate, **msgspec.to_builtins(run)} for run in runs],
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2)
