"""`onefold doctor` on real databases, healthy and not; `onefold backup` of a file in use."""

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ONEFOLD, Done, Operate, Run, run_apart
from tests.cli.test_status import on_terminal
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


@pytest.fixture
def file(sqlite_url: str) -> Place:
    place = Place(sqlite_url)
    with place.open() as onefold:
        for number in range(3):
            onefold.enqueue("email", {"number": number, "text": "x" * 100_000})
    return place


def test_a_copy_has_all_jobs_and_is_a_database_of_its_own(
    onefold_command: Run, file: Place, tmp_path: Path
) -> None:
    Path(file.url.removeprefix("sqlite:///")).chmod(0o600)
    done = onefold_command("backup", "copy.db", "--database", file.url, "--json")

    copy = tmp_path / "copy.db"
    assert copy.stat().st_mode & 0o777 == 0o600, "no more readers than the database"
    assert json.loads(done.stdout) == {"file": "copy.db", "bytes": copy.stat().st_size}
    assert done.stderr == "", "a progress bar is for terminals"
    with Place(f"sqlite:///{copy}").open() as onefold:
        assert len(onefold.find().jobs) == 3
        onefold.enqueue("email")
    with file.open() as onefold:
        assert len(onefold.find().jobs) == 3
    assert [path.name for path in tmp_path.glob("*.part*")] == []


def test_a_terminal_shows_the_progress(file: Place, tmp_path: Path) -> None:
    printed = on_terminal(80, "backup", "copy.db", "--database", file.url, folder=tmp_path)

    assert "Copying" in printed
    assert "Copied to copy.db" in printed


def test_a_copy_is_whole_while_others_write(
    onefold_command: Run, file: Place, tmp_path: Path
) -> None:
    stop = threading.Event()

    def write() -> None:
        with file.open() as onefold:
            while not stop.is_set():
                onefold.enqueue("email", {"text": "y" * 50_000})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        done = onefold_command("backup", "copy.db", "--database", file.url)
    finally:
        stop.set()
        writer.join()

    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(tmp_path / "copy.db")) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


def test_a_file_that_exists_is_replaced_only_by_force(
    onefold_command: Run, file: Place, tmp_path: Path
) -> None:
    (tmp_path / "copy.db").write_text("precious")

    refused = onefold_command("backup", "copy.db", "--database", file.url)
    kept = (tmp_path / "copy.db").read_text()
    forced = onefold_command("backup", "copy.db", "--database", file.url, "--force")

    assert (refused.returncode, kept) == (2, "precious")
    assert "--force" in refused.stderr
    assert forced.returncode == 0
    with Place(f"sqlite:///{tmp_path}/copy.db").open() as onefold:
        assert len(onefold.find().jobs) == 3


def test_a_copy_takes_no_place_of_a_database_or_beside_its_log(
    onefold_command: Run, file: Place, tmp_path: Path
) -> None:
    path = file.url.removeprefix("sqlite:///")
    (tmp_path / "old.db-wal").touch()

    for own in (path, f"{path}-wal"):
        done = onefold_command("backup", own, "--force", "--database", file.url)
        assert (done.returncode, "is the database itself" in done.stderr) == (2, True)
    old = onefold_command("backup", "old.db", "--database", file.url)

    assert (old.returncode, "old.db-wal exists" in old.stderr) == (2, True)
    assert not (tmp_path / "old.db").exists()
    with file.open() as onefold:
        assert len(onefold.find().jobs) == 3


def test_a_full_disk_is_one_sentence_and_leaves_no_file(file: Place, tmp_path: Path) -> None:
    command = f"ulimit -f 100; exec {ONEFOLD} backup copy.db --database {file.url}"

    done = run_apart("bash", "-c", command, folder=tmp_path)

    assert done.returncode == 1
    assert "the copy to copy.db failed" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.glob("copy.db*")) == []


def test_a_folder_that_does_not_exist_is_one_sentence(onefold_command: Run, file: Place) -> None:
    done = onefold_command("backup", "no/such/copy.db", "--database", file.url)

    assert done.returncode == 1
    assert done.stderr.startswith("onefold: ")
    assert done.stderr.count("\n") == 1


def test_for_postgres_the_command_to_use_is_printed(
    onefold_command: Run, postgres_url: str
) -> None:
    done = onefold_command("backup", "copy.dump", "--database", postgres_url, "--schema", "shop")

    assert done.returncode == 2
    assert "pg_dump --format=custom --schema=shop --file=copy.dump" in done.stderr
