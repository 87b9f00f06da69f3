"""SQLite in bad weather: locked, read-only, missing, damaged, full. A sentence for each."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from onefold import DatabaseBusy, DatabaseUnavailable, Onefold
from tests.faults.callers import Caller, Colour, run, run_on_a_small_disk, running

SHORT = timedelta(milliseconds=100)

HOLD_THE_LOCK = """
    import sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("begin immediate")
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A SQLite file with one job in it, closed."""
    path = tmp_path / "app.db"
    with Onefold(f"sqlite:///{path}") as onefold:
        onefold.enqueue("before")
    return path


@pytest.fixture(params=["sync", "async"])
def caller(request: pytest.FixtureRequest, file: Path) -> Iterator[Caller]:
    """Onefold on that file, impatient, in both colours."""
    colour: Colour = request.param
    caller = Caller(Onefold(f"sqlite:///{file}", busy_timeout=SHORT), colour)
    yield caller
    caller.close()


def kinds(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("select kind from onefold_job order by id")]


def test_a_lock_of_another_process_is_busy_and_says_what_to_do(caller: Caller, file: Path) -> None:
    with running(HOLD_THE_LOCK, file), pytest.raises(DatabaseBusy) as caught:
        caller("enqueue", "waits")

    assert str(file) in str(caught.value)
    assert "Commit or roll it back" in str(caught.value)
    assert caught.value.waited == SHORT
    caller("enqueue", "after")
    assert kinds(file) == ["before", "after"]


def test_a_lock_keeps_nobody_from_reading(caller: Caller, file: Path) -> None:
    with running(HOLD_THE_LOCK, file):
        page = caller("find")

    assert [job.kind for job in page] == ["before"]


def test_a_lock_on_a_file_without_tables_is_busy_too(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = wal")
    onefold = Onefold(f"sqlite:///{path}", busy_timeout=SHORT)

    with running(HOLD_THE_LOCK, path), pytest.raises(DatabaseBusy):
        onefold.enqueue("waits")

    assert onefold.enqueue("after").inserted
    onefold.close()


# As root, permissions mean nothing: whoever runs the tests, this process has no rights.
WITHOUT_RIGHTS = """
    import os, sys, tempfile
    from onefold import Onefold, DatabaseUnavailable
    with tempfile.TemporaryDirectory() as folder, Onefold(f"sqlite:///{folder}/x.db") as onefold:
        onefold.claim("a", "b")  # whatever has to be imported, while it can still be read
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    for call in (lambda o: o.enqueue("job"), lambda o: o.claim("a", "b")):
        onefold = Onefold(f"sqlite:///{sys.argv[1]}")
        try:
            call(onefold)
        except DatabaseUnavailable as error:
            print(error)
        onefold.close()
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user can reach; pytest's own are private."""
    folder = Path("/tmp") / f"onefold-faults-{os.getpid()}"
    folder.mkdir(mode=0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "sentence"),
    [
        pytest.param(0o444, 0o555, "read-only", id="both are read-only"),
        pytest.param(0o444, 0o777, "read-only", id="the file is read-only"),
        pytest.param(0o666, 0o555, "read-only", id="the folder is read-only"),
        pytest.param(0o000, 0o777, "cannot be opened", id="the file is secret"),
    ],
)
def test_what_may_not_be_written_is_unavailable(
    open_folder: Path, file: Path, file_mode: int, folder_mode: int, sentence: str
) -> None:
    path = open_folder / "app.db"
    shutil.copy(file, path)
    path.chmod(file_mode)
    open_folder.chmod(folder_mode)

    said = run(WITHOUT_RIGHTS, path)
    open_folder.chmod(0o755)
    path.chmod(0o644)

    assert len(said) == 2
    for line in said:
        assert line.startswith(f"sqlite:///{path}: ")
        assert sentence in line
    assert kinds(path) == ["before"]


def test_a_folder_that_is_missing_is_named_and_may_be_made_later(tmp_path: Path) -> None:
    path = tmp_path / "later" / "app.db"
    onefold = Onefold(f"sqlite:///{path}")
    with pytest.raises(DatabaseUnavailable, match="Does its folder exist") as caught:
        onefold.enqueue("job")
    assert str(path) in str(caught.value)

    path.parent.mkdir()

    assert onefold.enqueue("job").inserted
    onefold.close()


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match="cannot be opened"):
        Onefold(f"sqlite:///{tmp_path}").enqueue("job")


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, " * 500)

    with pytest.raises(DatabaseUnavailable, match="not a SQLite database"):
        Onefold(f"sqlite:///{path}").enqueue("job")

    assert path.read_text() == "Dear reader, " * 500


def test_a_damaged_file_says_so(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        (page_size,) = connection.execute("pragma page_size").fetchone()
        (root,) = connection.execute(
            "select rootpage from sqlite_schema where name = 'onefold_job'"
        ).fetchone()
    with file.open("r+b") as opened:
        opened.seek((root - 1) * page_size)
        opened.write(b"\xff" * page_size)

    with (
        Onefold(f"sqlite:///{file}") as onefold,
        pytest.raises(DatabaseUnavailable, match="damaged") as caught,
    ):
        onefold.enqueue("job")

    assert "backup" in str(caught.value)


FILL_THE_DISK = """
    from onefold import Onefold, NewJob, DatabaseUnavailable

    onefold = Onefold(f"sqlite:///{folder}/app.db")
    stored = onefold.enqueue("before").id
    fill()
    try:
        onefold.enqueue_many(
            [NewJob("big", {"n": "x" * 10_000}, unique_key=str(n)) for n in range(60)]
        )
    except DatabaseUnavailable as error:
        print("refused", error)
    print("stored", [job.kind for job in onefold.find()], onefold.get(stored).kind)
    make_room()
    print("again", onefold.enqueue("after", unique_key="0").inserted)
    print("stored", [job.kind for job in onefold.find()])
"""


def test_a_full_disk_stores_nothing_and_works_again_after_room_was_made(tmp_path: Path) -> None:
    said, mounts = run_on_a_small_disk(FILL_THE_DISK, tmp_path)

    assert said[0].startswith("refused sqlite:///")
    assert ("disk is full. Make room" if mounts else "disk failed") in said[0]
    assert said[1:] == ["stored ['before'] before", "again True", "stored ['before', 'after']"]


def test_a_table_that_somebody_dropped_is_not_called_a_lock(sqlite_url: str) -> None:
    with Onefold(sqlite_url, busy_timeout=timedelta(minutes=5)) as onefold:
        onefold.migrate()
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
            connection.execute("drop table onefold_job")

        with pytest.raises(sqlite3.OperationalError, match="no such table") as caught:
            onefold.enqueue("email")

    assert caught.value.__cause__ is not caught.value
