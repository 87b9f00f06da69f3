"""`onefold doctor` on real databases, healthy and not."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Done, Operate, Run
from tests.fixtures.place import Place


def examined(done: Done) -> dict[str, dict[str, Any]]:
    """The findings by check; the last of each."""
    return {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}


@pytest.mark.usefixtures("onefold")
def test_a_database_is_examined(operate: Operate, place: Place) -> None:
    found = examined(operate("doctor", "--json"))
    text = operate("doctor").stdout.splitlines()

    server = "PostgreSQL" if place.on_postgres else "SQLite"
    assert server in found["database"]["message"]
    checks = {"database", "schema", "indexes"}
    more = {"clock", "locks", "vacuum", "wake-up"} if place.on_postgres else {"file", "disk"}
    assert {check: found[check]["level"] for check in checks | more} == dict.fromkeys(
        checks | more, "ok"
    )
    assert len(text) == len(json.loads(operate("doctor", "--json").stdout)["findings"]) + 1
    assert all(line.split()[0] in {"ok", "warning", "problem"} for line in text[:-1])
    assert "\x1b" not in "".join(text)


@pytest.mark.usefixtures("onefold")
def test_a_missing_index_is_a_problem_with_a_fix(operate: Operate, place: Place) -> None:
    index = "onefold_job_keep"
    with place.connection() as connection:
        if place.on_postgres:
            index = "job_keep"
            connection.execute(f'drop index "{place.schema}".job_keep')
        else:
            connection.execute("drop index onefold_job_keep")

    done = operate("doctor")

    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if "indexes" in line]
    assert line.startswith("problem ")
    assert f"The index {index} is missing." in line
    assert "onefold migrate --sql" in line


def test_a_database_that_is_away_is_a_problem(onefold_command: Run) -> None:
    done = onefold_command("doctor", "--database", "postgresql://nobody@127.0.0.1:1/nowhere")

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("problem database     postgresql://nobody@127.0.0.1:1/nowhere")
    assert done.stdout.endswith("1 problem, 0 warnings.\n")


def test_tables_that_are_missing_are_a_problem(onefold_command: Run, postgres_url: str) -> None:
    done = onefold_command("doctor", "--database", postgres_url, "--schema", "never_made")

    assert done.returncode == 1
    assert "onefold migrate" in done.stdout


def test_a_file_of_another_application_is_not_changed(onefold_command: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("create table invoice (id)")
    before = other.read_bytes()

    done = onefold_command("doctor", "--database", f"sqlite:///{other}")

    assert done.returncode == 2
    assert "has no tables of Onefold. `onefold migrate` creates it." in done.stderr
    assert other.read_bytes() == before
