"""`onefold chaos` with real workers, which are killed, frozen and cut off."""

import json
import os
import signal
import subprocess
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ONEFOLD, Run
from tests.fixtures.place import Place

# The first orders wait for the faults: these hit some in their middle, on a slow machine, too.
APP = """
import os
import signal
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg

from onefold import Fixed, Onefold, Run

Path(f"process-{{os.getpid()}}").touch()
onefold = Onefold({url!r}, schema={schema!r})
at_once = Fixed(timedelta(0))


@onefold.job(backoff=at_once)
def pay(run: Run, order: int) -> None:
    again = Path(f"again-{{order}}")
    if run.attempt > 1:
        again.touch()
    while order == 1 and not again.exists():
        threading.Event().wait(0.01)
    with run.transaction() as tx:
        tx.execute(f"insert into {effects} values ({{order}})")


@onefold.job(backoff=at_once)
def pay_twice(order: int) -> None:
    with closing({connect}) as connection:
        connection.execute(f"insert into {effects} values ({{order}})")
        query = "select count(*) - count(distinct number) from {effects}"
        while order <= 5 and connection.execute(query).fetchone() == (0,):
            threading.Event().wait(0.05)


@onefold.job(backoff=at_once)
def vanish(run: Run) -> None:
    Path(f"fence-{{run.fence}}").touch()
    if run.fence <= 5:
        os.kill(os.getpid(), signal.SIGKILL)
"""
SHORT = ("--seconds", "5", "--lease", "500ms", "--drain", "25s")


@pytest.fixture
def shop(place: Place, tmp_path: Path) -> Place:
    """The application `shop:onefold`, and its table."""
    write_shop(place, tmp_path)
    return place


@pytest.fixture
def sqlite_shop(migrated_sqlite_url: str, tmp_path: Path) -> Place:
    """For what is the same on both databases."""
    place = Place(migrated_sqlite_url)
    write_shop(place, tmp_path)
    return place


def write_shop(place: Place, folder: Path) -> None:
    path = place.url.removeprefix("sqlite:///")
    connect = (
        f"psycopg.connect({place.url!r}, autocommit=True)"
        if place.on_postgres
        else f"sqlite3.connect({path!r}, timeout=30, isolation_level=None)"
    )
    effects = place.effects.replace('"', "")
    text = APP.format(url=place.url, schema=place.schema, effects=effects, connect=connect)
    (folder / "shop.py").write_text(text)
    with place.connection() as connection:
        connection.execute(f"create table {place.effects} (number integer)")


def chaos(command: Run, place: Place, kind: str, *more: str) -> tuple[int, dict[str, Any]]:
    done = command(
        "chaos", "shop:onefold", "--yes", "--json", *SHORT,
        "--enqueue", kind, "--payload", '{"order": {n}}', "--count", "20",
        "--check", f"select count(*) from {place.effects}", "--expect", "20", *more,
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def processes(folder: Path) -> list[int]:
    """All others that have imported the application."""
    found = [int(path.name.removeprefix("process-")) for path in folder.glob("process-*")]
    return [process for process in found if process != os.getpid()]


def no_process_is_left(folder: Path) -> None:
    for process in processes(folder):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_handler_that_is_idempotent_passes(
    onefold_command: Run, shop: Place, tmp_path: Path
) -> None:
    status, report = chaos(onefold_command, shop, "pay", "--seed", "7")

    assert (status, report["holds"]) == (0, True), report
    assert report["result"] == "20"
    assert report["jobs"] == {"completed": 20}
    assert report["seed"] == 7
    assert report["kills"] > 0
    assert report["freezes"] > 0
    assert (report["cuts"] or 0) > 0 if shop.on_postgres else report["cuts"] is None
    assert report["delivered_again"] > 0
    assert shop.rows("select count(distinct number) from {effect}", effect=shop.effects) == [(20,)]
    assert processes(tmp_path), "those that ran a handler say so"
    no_process_is_left(tmp_path)


@pytest.mark.prove
def test_a_handler_that_doubles_fails(onefold_command: Run, shop: Place) -> None:
    status, report = chaos(onefold_command, shop, "pay_twice")

    assert (status, report["holds"]) == (1, False), report
    assert int(report["result"]) > 20, report
    assert report["left"] == 0


@pytest.mark.prove
def test_jobs_that_are_buried_because_their_workers_vanish_are_replayed(
    onefold_command: Run, sqlite_shop: Place, tmp_path: Path
) -> None:
    done = onefold_command(
        "chaos", "shop:onefold", "--yes", "--seconds", "1", "--lease", "500ms", "--tenant", "acme",
        "--enqueue", "vanish", "--count", "1",
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert (tmp_path / "fence-6").exists()
    lines = done.stdout.splitlines()
    assert "jobs          1 completed" in lines
    assert "replayed      1" in lines
    assert lines[-1] == "No job is left. Add --check SQL to check their effects."
    with sqlite_shop.open() as onefold:
        assert [job.kind for job in onefold.tenant("acme").find()] == ["vanish"]


def test_an_interrupt_leaves_no_process(sqlite_shop: Place, tmp_path: Path) -> None:
    chaos = subprocess.Popen(
        [
            ONEFOLD,
            "chaos",
            "shop:onefold",
            "--yes",
            "--enqueue",
            "pay",
            "--payload",
            '{"order": 1}',
        ],
        cwd=tmp_path,
    )
    while len(processes(tmp_path)) < 4 and chaos.poll() is None:
        threading.Event().wait(0.01)
    chaos.send_signal(signal.SIGINT)

    assert chaos.wait() == 128 + signal.SIGINT
    no_process_is_left(tmp_path)


@pytest.mark.prove
def test_a_job_that_is_left_fails(onefold_command: Run, sqlite_shop: Place) -> None:
    with sqlite_shop.open() as onefold:
        onefold.enqueue("pay", {"order": 2}, queue="that no worker serves")

    done = onefold_command(
        "chaos", "shop:onefold", "--yes", "--seconds", "1", "--drain", "1ms",
        "--enqueue", "pay", "--payload", '{"order": 2}', "--count", "1",
    )  # fmt: skip

    assert done.returncode == 1
    assert " ready" in done.stdout
    assert "have not ended" in done.stdout.splitlines()[-1]


def test_a_run_without_jobs_proves_nothing(onefold_command: Run, sqlite_shop: Place) -> None:
    with sqlite_shop.open() as onefold:
        onefold.enqueue("pay", {"order": 2}, delay=timedelta(days=1))
        onefold.cancel(onefold.find().jobs[0].id)

    done = onefold_command("chaos", "shop:onefold", "--yes", "--seconds", "1")

    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("No job was run.")


def test_it_asks_for_a_confirmation(onefold_command: Run, sqlite_shop: Place) -> None:
    done = onefold_command("chaos", "shop:onefold")

    assert (done.returncode, done.stdout) == (2, "")
    assert "kills their workers" in done.stderr
    assert done.stderr.endswith("Add --yes to do it.\n")
    assert done.stderr.count("\n") == 1


def test_the_check_cannot_write(onefold_command: Run, shop: Place) -> None:
    done = onefold_command(
        "chaos", "shop:onefold", "--yes", "--check", f"drop table {shop.effects}"
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert "check must be a query of your tables" in done.stderr
    assert shop.rows("select count(*) from {effect}", effect=shop.effects) == [(0,)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "No application is given"),
        (("shop",), "must be like module:app"),
        (("shop:onefold", "--expect", "1"), "add --check SQL"),
        (("shop:onefold", "--check", "select nothing"), "check must be a query of your tables"),
        (("shop:onefold", "--check", ""), "check must be a query, got ''"),
        (("shop:onefold", "--lease", "soon"), "lease must be like 30s"),
        (("shop:onefold", "--lease", "1ms"), "lease must not be shorter"),
        (
            ("shop:onefold", "--enqueue", "refund"),
            "must be a declared job (pay, pay_twice, vanish)",
        ),
        (("shop:onefold", "--enqueue", "pay", "--payload", "[1]"), "must be a JSON object"),
        (("shop:onefold", "--enqueue", "pay", "--payload", '{"item": 1}'), "argument: 'order'"),
        (("shop:onefold", "--payload", '{"order": 1}'), "add --enqueue KIND"),
        (("shop:onefold", "--count", "5"), "add --enqueue KIND"),
    ],
)
def test_bad_input_is_a_sentence_and_status_2(
    onefold_command: Run, sqlite_shop: Place, arguments: tuple[str, ...], sentence: str
) -> None:
    done = onefold_command("chaos", *arguments, "--yes", "--seconds", "1")

    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
