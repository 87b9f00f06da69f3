"""SQLite's writer: one thread writes at a time, whoever asks, and nobody waits in vain."""

import asyncio
import gc
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onefold import Closed, DatabaseBusy, DatabaseUnavailable, Onefold, WouldDeadlock
from onefold.databases.sqlite.writer import SqliteWriter, single
from onefold.operations.statement import Operation, Sql
from tests.faults.callers import run_on_a_small_disk
from tests.fixtures.patience import HANG
from tests.fixtures.place import Place
from tests.race.crew import DEADLINE
from tests.race.waiting import until

SOON = timedelta(milliseconds=200)


@pytest.fixture
def file(sqlite_url: str) -> Place:
    with Onefold(sqlite_url) as onefold:
        onefold.migrate()
    return Place(sqlite_url)


@pytest.fixture
def onefold(file: Place) -> Iterator[Onefold]:
    with file.open() as opened:
        opened.find()
        yield opened


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that ends as soon as it has nothing to do."""
    monkeypatch.setattr("onefold.databases.batching.IDLE", 0.001)


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "onefold-writer"]


class TestOne:
    def test_one_thread_writes_for_many_threads_and_loops(
        self, file: Place, onefold: Onefold
    ) -> None:
        async def loop(rank: int) -> list[bool]:
            answers = await asyncio.gather(
                *(onefold.aenqueue("mail", unique_key=f"{rank} {n}") for n in range(16))
            )
            return [answer.inserted for answer in answers]

        def thread(rank: int) -> list[bool]:
            return [onefold.enqueue("mail", unique_key=f"{rank} {n}").inserted for n in range(4)]

        before = len(writers())
        with ThreadPoolExecutor(68) as pool:
            with file.transaction():
                answers = [pool.submit(asyncio.run, loop(rank)) for rank in range(4)]
                answers += [pool.submit(thread, rank) for rank in range(4, 68)]
                until(lambda: len(writers()) > before, "for the writer")
            stored = [one for answer in answers for one in answer.result(DEADLINE)]
            assert len(writers()) == before + 1

        assert stored == [True] * (4 * 16 + 64 * 4)
        assert file.rows("select count(*) from {job}") == [(len(stored),)]

    @pytest.mark.usefixtures("restless")
    def test_it_ends_when_it_is_idle_and_starts_again(self, onefold: Onefold) -> None:
        for _ in range(3):
            onefold.enqueue("mail")
            until(lambda: not writers(), "for the writer to end")

        assert len(onefold.find()) == 3

    @pytest.mark.usefixtures("restless")
    def test_an_object_that_is_dropped_leaves_no_thread_behind(self, file: Place) -> None:
        dropped = file.open()
        dropped.enqueue("mail")
        seen = weakref.ref(dropped)

        del dropped
        until(lambda: not writers(), "for the writer to end")
        gc.collect()

        assert seen() is None


class TestWaiting:
    def test_a_thread_that_would_wait_for_itself_is_told_so_beside_others(
        self, file: Place, onefold: Onefold
    ) -> None:
        with ThreadPoolExecutor(4) as pool, file.connection() as connection:
            connection.execute("begin immediate")
            onefold.within(connection).enqueue("mail", "within")
            others = [pool.submit(onefold.enqueue, "mail", number) for number in range(4)]

            with pytest.raises(WouldDeadlock, match="within"):
                onefold.enqueue("mail", "never")

            connection.execute("commit")
            assert all(other.result(DEADLINE).inserted for other in others)
        assert sorted(str(job.payload) for job in onefold.find()) == ["0", "1", "2", "3", "within"]

    def test_each_caller_waits_for_its_own_time(self, file: Place) -> None:
        """One who came with little patience is told, and one who came with more goes on."""
        with file.open(busy_timeout=SOON) as hasty, file.open() as patient:
            hasty.find()
            patient.find()
            with ThreadPoolExecutor(2) as pool:
                with file.transaction():
                    waits = pool.submit(patient.enqueue, "mail")
                    with pytest.raises(DatabaseBusy) as caught:
                        hasty.enqueue("mail")
                    assert not waits.done()
                assert waits.result(DEADLINE).inserted
        assert caught.value.waited == SOON

    @pytest.mark.parametrize("colour", ["sync", "async"])
    def test_closing_answers_everybody_first(self, file: Place, colour: str) -> None:
        onefold = file.open()
        onefold.find()

        async def all_at_once() -> list[Any]:
            calls = (onefold.aenqueue("mail", number) for number in range(8))
            answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
            return answers

        def ask(number: int) -> Any:
            return onefold.enqueue("mail", number)

        with ThreadPoolExecutor(10) as pool:
            with file.transaction():
                if colour == "sync":
                    answers = [pool.submit(ask, number) for number in range(8)]
                else:
                    answers = [pool.submit(asyncio.run, all_at_once())]
                until(lambda: bool(writers()), "for the writer")
                closing = pool.submit(onefold.close)
            closing.result(DEADLINE)
            told = [_told(answer) for answer in answers]
        found = told if colour == "sync" else told[0]
        stored = [one for one in found if not isinstance(one, Closed)]

        assert all(one.inserted for one in stored)
        assert file.rows("select count(*) from {job}") == [(len(stored),)]
        with pytest.raises(Closed):
            onefold.enqueue("mail")


def _told(answer: Any) -> Any:
    return answer.exception(DEADLINE) or answer.result()


class Broken(sqlite3.Connection):
    """Fails at `begin` in the given ways, one after the other."""

    coming: list[str]

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:  # pyright: ignore[reportIncompatibleMethodOverride]
        if sql == "begin immediate" and self.coming:
            error = sqlite3.OperationalError(kind := self.coming.pop(0))
            error.sqlite_errorcode = {"busy": 5, "disk": 10}[kind]
            raise error
        return super().execute(sql, *parameters)


class BrokenFile:
    """A file whose disk fails while callers wait for its lock."""

    def __init__(self, path: Path, *coming: str) -> None:
        self.sql = Sql("sqlite")
        self.clock: Callable[[], int] | None = None
        self.patience = DEADLINE
        self._path = path
        self._coming = list(coming)

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, factory=Broken
        )
        connection.coming = self._coming
        return connection

    def begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("begin immediate")

    def given_up(self) -> DatabaseBusy:
        return DatabaseBusy("somebody has it.", waited=timedelta(seconds=1))

    def translated(self, error: sqlite3.Error) -> Exception:
        return DatabaseUnavailable("file", str(error))

    def refuse_own_lock(self, thread: int) -> None:
        """Nobody has lent us anything."""


def nothing(sql: Sql) -> Operation[str]:
    """An operation that wants next to nothing."""
    yield sql("has_identity")
    return "done"


def test_tasks_wait_for_the_lock_at_the_same_time(file: Place) -> None:
    """One after the other they would wait for minutes."""

    async def play() -> float:
        async with Onefold(file.url, busy_timeout=timedelta(seconds=1)) as onefold:
            await onefold.aenqueue("mail")
            began = time.monotonic()
            with file.transaction():
                calls = (onefold.aenqueue("mail") for _ in range(200))
                answers = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(answer) for answer in answers} == {DatabaseBusy}
            return time.monotonic() - began

    assert asyncio.run(play()) < HANG


def test_tasks_share_a_commit_although_one_of_them_fails(
    file: Place, onefold: Onefold, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []
    write = SqliteWriter._write

    def counted(writer: SqliteWriter, entries: list[Any]) -> bool:
        commits.append(len(entries))
        return write(writer, entries)

    async def play() -> list[Any]:
        await onefold.aenqueue("mail", unique_key="50")
        monkeypatch.setattr(SqliteWriter, "_write", counted)
        calls = (
            onefold.aenqueue("mail", unique_key=str(n), on_duplicate="raise") for n in range(100)
        )
        return [*await asyncio.gather(*calls, return_exceptions=True)]

    answers = asyncio.run(play())

    assert [n for n, answer in enumerate(answers) if isinstance(answer, Exception)] == [50]
    assert file.rows("select count(*) from {job}") == [(100,)]
    assert len(commits) < 20


def test_those_who_came_while_it_waited_are_told_of_what_failed_then(tmp_path: Path) -> None:
    file: Any = BrokenFile(tmp_path / "x.db", *["busy"] * 20, "disk")
    writer = SqliteWriter(file)
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(writer.run(single(nothing)))
        except DatabaseUnavailable as error:
            answers.append(error)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    ask()
    writer.close()

    assert len(answers) == 9
    assert any(isinstance(answer, DatabaseUnavailable) for answer in answers[:8])
    assert answers[8] == "done"


FILL_THE_DISK = """
    import threading
    from concurrent.futures import ThreadPoolExecutor
    from onefold import Onefold, DatabaseUnavailable

    onefold = Onefold(f"sqlite:///{folder}/app.db")
    onefold.enqueue("before")
    fill()
    start = threading.Barrier(40)

    def ask(number):
        start.wait()
        try:
            return onefold.enqueue("big", "x" * 20_000, unique_key=str(number)).id
        except DatabaseUnavailable as error:
            return error

    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(ask, range(40)))

    refused = [answer for answer in answers if isinstance(answer, DatabaseUnavailable)]
    make_room()
    stored = {job.id for job in onefold.find(kind="big", limit=100)}
    print(bool(refused), stored == set(answers) - set(refused))
    print(onefold.enqueue("after").inserted)
"""


def test_a_full_disk_in_a_shared_commit_tells_each_the_truth(tmp_path: Path) -> None:
    said, _ = run_on_a_small_disk(FILL_THE_DISK, tmp_path)

    assert said == ["True True", "True"]
