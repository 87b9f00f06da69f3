"""`make bench`: run the measurements, print the results, and store them as JSON.

ONLY=enqueue    the measurements whose name contains the word, or is it; several, parted by commas;
                `list` prints the names
SCALE=0.1       a tenth of the jobs, for a quick look
ROUNDS=3        how often each contestant runs
SOCKET=unix     connect to PostgreSQL through its Unix socket; the default is tcp
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import postgres, report
from bench.plan import MEASUREMENTS, chosen, scaled
from bench.rounds import measure
from bench.values import Contestant, Database, Lap, Measurement, Order, Run, Way
from bench.verdict import complete

if TYPE_CHECKING:
    from collections.abc import Generator

FOLDER: Final = Path("build/bench")
ROUNDS: Final = 3
LARGEST_SCALE: Final = 1000
WIDTH: Final = 130
EVENT_LOOP: Final = "asyncio; uvloop in the workers of onefold and pgqueuer"


class Settings(msgspec.Struct, frozen=True):
    """What the environment asks for."""

    only: str
    scale: float
    rounds: int
    socket: Way


class ContestantFailed(Exception):
    """A run that has no lap."""


def main() -> None:
    """Run what is asked for."""
    console = _console()
    if os.environ.get("ONLY") == "list":
        for each in MEASUREMENTS:
            console.print(f"{each.name:<32}{each.says}", soft_wrap=True)
        return
    # However it is ended, the server goes with it, and what was measured is not lost.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = _settings()
    measurements = scaled(chosen(settings.only), settings.scale)
    if not measurements:
        sys.exit(f"ONLY={settings.only} chooses no measurement; ONLY=list prints their names.")
    FOLDER.mkdir(parents=True, exist_ok=True)
    runs: list[Run] = []
    failure: str | None = None
    with _alone(), _databases(measurements, settings.socket) as urls:
        facts = _facts(settings, urls)
        console.print(report.facts_table(facts))
        _warn_of_others(console)
        try:
            _measure_all(console, measurements, settings.rounds, urls, runs)
        except KeyboardInterrupt:
            failure = "The benchmark was interrupted."
        except ContestantFailed as error:
            failure = str(error)
        if failure:
            console.print(f"{failure} What was measured until then:", style="red", soft_wrap=True)
        # Before the databases go: whatever they do, it is not lost.
        whole = complete(measurements, settings.rounds, runs)
        _conclude(console, facts, whole, runs, failure)
    sys.exit(failure)


@contextmanager
def _databases(measurements: list[Measurement], way: Way) -> Generator[dict[Database, str]]:
    """A server, where one is needed, and a file on the same disk."""
    wanted = {each.database for each in measurements}
    urls: dict[Database, str] = {}
    with ExitStack() as stack:
        if "postgres" in wanted:
            folder = FOLDER.absolute() / "postgres"
            urls["postgres"] = stack.enter_context(postgres.server(folder, way))
        if "sqlite" in wanted:
            folder = Path(stack.enter_context(TemporaryDirectory(dir=FOLDER)))
            urls["sqlite"] = f"sqlite:///{folder.absolute() / 'bench.db'}"
        yield urls


def _conclude(
    console: Console,
    facts: dict[str, dict[str, Any]],
    measurements: list[Measurement],
    runs: list[Run],
    failure: str | None,
) -> None:
    console.print(report.ratios_table(measurements, runs))
    path = FOLDER / f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}.json"
    path.write_bytes(report.document(facts, measurements, runs, failure))
    console.print(f"Every run is in {path}", soft_wrap=True)


def _console() -> Console:
    """Wide enough for the tables where the output goes into a file."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=WIDTH, highlight=False)


def _settings() -> Settings:
    given = {
        "only": os.environ.get("ONLY", ""),
        "scale": os.environ.get("SCALE") or 1.0,
        "rounds": os.environ.get("ROUNDS") or ROUNDS,
        "socket": os.environ.get("SOCKET") or "tcp",
    }
    try:
        settings = msgspec.convert(given, Settings, strict=False)
    except msgspec.ValidationError as error:
        sys.exit(f"SCALE must be a number, ROUNDS a whole one, SOCKET tcp or unix: {error}")
    # Neither is true of nan.
    if not 0 < settings.scale <= LARGEST_SCALE or settings.rounds < 1:
        sys.exit(f"SCALE must be above 0 and at most {LARGEST_SCALE}, and ROUNDS at least 1.")
    return settings


def _facts(settings: Settings, urls: dict[Database, str]) -> dict[str, dict[str, Any]]:
    facts: dict[str, dict[str, Any]] = {
        "machine": {**report.machine(), "file_system": report.file_system(FOLDER)},
        "versions": report.versions(),
        "settings": {**msgspec.to_builtins(settings), "event_loop": EVENT_LOOP},
    }
    if "postgres" in urls:
        facts["postgres"] = postgres.settings(urls["postgres"])
    if "sqlite" in urls:
        facts["sqlite"] = {"journal_mode": "wal", "synchronous": "full"}
    return facts


def _warn_of_others(console: Console) -> None:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        console.print(
            f"The machine is busy (load {load:.1f} on {cores} cores): what is measured now means"
            " little.",
            style="yellow",
        )


@contextmanager
def _alone() -> Generator[None]:
    """Two benchmarks at once would measure each other."""
    with (FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("Another benchmark is running here. Wait until it has ended.")
        yield


def _measure_all(
    console: Console,
    measurements: list[Measurement],
    rounds: int,
    urls: dict[Database, str],
    runs: list[Run],
) -> None:
    columns = (
        *(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        total = sum(len(each.contestants) * rounds for each in measurements)
        bar = progress.add_task("", total=total)
        for each in measurements:

            def play(contestant: Contestant, each: Measurement = each) -> Lap:
                progress.update(bar, description=f"{each.name}: {contestant.name}")
                return _play(each, contestant, urls[each.database])

            for run in measure(each, rounds, play):
                runs.append(run)
                # It will be repeated: there is one more to come.
                total += run.set_aside
                progress.update(bar, advance=1, total=total)
            progress.console.print(report.title(each))
            progress.console.print(report.figures_table(each, runs))
            progress.console.print()


def _play(measurement: Measurement, contestant: Contestant, url: str) -> Lap:
    """One run, in a process of its own."""
    options = {**measurement.options, **contestant.options}
    order = Order(contestant.plays, url, measurement.jobs, options)
    done = subprocess.run(
        [sys.executable, "-m", "bench.play"],
        input=msgspec.json.encode(order),
        stdout=subprocess.PIPE,
        check=False,
    )
    try:
        if done.returncode == 0:
            return msgspec.json.decode(done.stdout, type=Lap)
    except msgspec.DecodeError:
        sys.stderr.write(done.stdout.decode(errors="replace"))
    raise ContestantFailed(
        f"{contestant.name} failed in {measurement.name}; what it said is above."
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Interrupted before anything was measured.")
