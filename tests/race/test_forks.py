"""Forks: parent, child and other processes use one database, and no confirmed job is lost."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from onefold import Onefold
from tests.faults.callers import run
from tests.fixtures.place import Place
from tests.fixtures.proof import SEED, proved, repetitions
from tests.race.forking import Stage

ORDERS = [*range(12), *proved(*range(12, repetitions(200, soak=2000)))]


@pytest.fixture
def stage(place: Place, tmp_path: Path) -> Iterator[Stage]:
    """A parent, and a process that is not related to it."""
    with Stage(place, tmp_path / "ledger") as stage:
        stage.start("parent")
        stage.start("stranger")
        yield stage


@pytest.mark.parametrize("end", ["close", "kill"])
@pytest.mark.parametrize("in_thread", [False, True])
def test_a_child_goes_on_when_its_parent_ends_first(
    stage: Stage, end: str, *, in_thread: bool
) -> None:
    stage.tell("parent", "write", "of the parent")
    stage.fork("parent", "child", in_thread=in_thread)
    stage.tell("child", "write", "of the child")
    if end == "close":
        stage.tell("parent", "close")
    else:
        stage.kill("parent")
    stage.tell("stranger", "write", "of the stranger")
    stage.tell("stranger", "close")

    assert all(stage.tell("child", "write", f"later {number}") for number in range(20))
    stage.tell("child", "close")
    stage.audit()


class History:
    """A random order of writes, reads, forks, closes and deaths."""

    def __init__(self, stage: Stage, seed: str) -> None:
        self.stage = stage
        self.draw = random.Random(seed)
        self.open: set[str] = set()
        """Processes with a connection of the application's own, made there or inherited."""
        self.stuck: set[str] = set()
        """Processes with one that they cannot close: it is a thread's, of the parent perhaps."""
        self.refused: set[str] = set()
        """Children that have inherited such a connection to a SQLite file."""
        self.forks = 0

    def run(self, *, reads: bool) -> None:
        """Perform a random order, and verify what it has left."""
        steps = [self.write] * 6 + [self.fork] * 3 + [self.close] * 2
        steps += [self.kill, self.hammer, self.fork_in_transaction]
        if reads:
            steps += [self.begin_read, self.begin_read, self.end_reads]
        for _ in range(20):
            if self.stage.names:
                self.draw.choice(steps)(self.draw.choice(self.stage.names))
        for name in self.draw.sample(self.stage.names, len(self.stage.names)):
            self.write(name)
            self.draw.choice([self.close, self.kill])(name)
        self.stage.audit()

    def write(self, name: str) -> None:
        colour = self.draw.choice(["sync", "async"])
        stored = self.stage.tell(name, "write", f"key {self.draw.randrange(20)}", colour)
        assert stored == self.stage.tell(name, "read") == (name not in self.refused)

    def fork(self, name: str) -> None:
        self.forks += 1
        child = f"child {self.forks} of {name}"
        self.stage.fork(name, child, in_thread=self.draw.random() < 0.3)
        for kind in (self.open, self.stuck):
            if name in kind and not self.stage.place.on_postgres:
                kind.add(child)
                self.refused.add(child)
        self.write(child)

    def fork_in_transaction(self, name: str) -> None:
        if name in self.refused:
            return
        self.stage.tell(name, "begin_write", f"transaction {self.forks}")
        self.stuck.add(name)
        self.fork(name)
        self.stuck.remove(name)
        self.draw.choice([self.rest, self.kill])(name)

    def rest(self, name: str) -> None:
        self.stage.tell(name, "rest")

    def close(self, name: str) -> None:
        self.rest(name)
        self.stage.tell(name, "close")

    def kill(self, name: str) -> None:
        self.stage.kill(name)

    def hammer(self, name: str) -> None:
        if name not in self.refused:
            self.stage.tell(name, "hammer", f"{name} {self.forks}")

    def begin_read(self, name: str) -> None:
        if name not in self.refused:
            self.stage.tell(name, "begin_read")
            self.open.add(name)

    def end_reads(self, name: str) -> None:
        self.stage.tell(name, "end_reads")
        self.open.discard(name)


@pytest.mark.parametrize("order", ORDERS)
def test_no_order_of_forks_and_deaths_loses_a_job(stage: Stage, order: int) -> None:
    History(stage, f"{SEED} {order}").run(reads=order % 2 == 1)


REFUSED = """
    import asyncio, ctypes, os, signal, sqlite3, sys
    import aiosqlite, sqlalchemy
    from onefold import Onefold, Run, UsageError

    url, kind = sys.argv[1:]
    onefold, loop = Onefold(url), asyncio.new_event_loop()
    path = url.removeprefix("sqlite:///")

    def fork(connection):
        # A fork of the C library calls none of Python's functions.
        if child := ctypes.CDLL(None).fork() if kind == "c" else os.fork():
            return print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        refused = 0
        for call in (
            lambda: onefold.enqueue("lost"),
            lambda: onefold.find(),
            lambda: asyncio.run(onefold.aenqueue("lost")),
            lambda: asyncio.run(onefold.afind()),
            lambda: Onefold(url).enqueue("lost"),
            lambda: borrow(connection),
        ):
            try:
                call()
            except UsageError as error:
                refused += "was open when this process was forked" in str(error)
        os._exit(refused)

    def stop():
        os.kill(os.getpid(), signal.SIGTERM)

    def borrow(connection):
        if kind == "aiosqlite":
            return loop.run_until_complete(aborrow(connection))
        return onefold.within(connection).enqueue("kept")

    async def aborrow(connection):
        await onefold.within(connection).aenqueue("kept")

    @onefold.job
    def work(run: Run) -> None:
        with run.transaction() as transaction:
            borrow(transaction)
            fork(transaction)
        stop()

    match kind:
        case "sqlite3":
            connection = sqlite3.connect(path)
            borrow(connection)
            fork(connection)
            connection.commit()
        case "sqlalchemy":
            engine = sqlalchemy.create_engine(url)
            with engine.begin() as connection:
                borrow(connection)
            fork(engine.connect())
        case "aiosqlite":
            connection = loop.run_until_complete(aiosqlite.connect(path))
            borrow(connection)
            fork(connection)
            loop.run_until_complete(connection.commit())
            loop.run_until_complete(connection.close())
        case "c":
            onefold.enqueue("kept")
            fork(sqlite3.connect(path))
        case "handler":
            work.enqueue()
            onefold.run_worker()
            onefold = Onefold(url)
    onefold.enqueue("kept")
    onefold.close()
"""


@pytest.mark.parametrize("kind", ["sqlite3", "sqlalchemy", "aiosqlite", "handler", "c"])
def test_a_child_refuses_a_file_whose_connection_it_has_inherited(
    kind: str, sqlite_url: str
) -> None:
    assert run(REFUSED, sqlite_url, kind) == ["6"]

    with Onefold(sqlite_url) as onefold:
        assert [job.kind for job in onefold.find() if job.kind != "work"] == ["kept"] * 2


FORKING_HANDLERS = """
    import os, signal, sys
    from onefold import Onefold

    onefold = Onefold(sys.argv[1], schema=sys.argv[2])

    @onefold.job(kind="plain")
    def plain() -> None:
        fork()
        awaited.enqueue()

    @onefold.job(kind="awaited")
    async def awaited() -> None:
        fork()
        os.kill(os.getpid(), signal.SIGTERM)

    def fork():
        child = os.fork()
        if child == 0:
            onefold.enqueue("of the child")
            onefold.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

    plain.enqueue()
    onefold.run_worker()
"""


def test_a_handler_may_fork_outside_of_a_transaction(place: Place) -> None:
    run(FORKING_HANDLERS, place.url, place.schema)

    with place.open() as onefold:
        assert sorted((job.kind, job.state) for job in onefold.find()) == [
            ("awaited", "completed"),
            ("of the child", "ready"),
            ("of the child", "ready"),
            ("plain", "completed"),
        ]


INTERRUPTED = """
    import os, signal, sqlite3, sys
    from datetime import UTC, datetime
    from onefold import Onefold, UsageError

    path, moment = sys.argv[1:]
    parent, children = os.getpid(), []
    locker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    inside = []

    def fork(*_):
        if moment == "waiting":
            # Not before the fork: a child must not inherit a connection that is open.
            locker.close()
        child = os.fork()
        if child == 0 and moment == "writing":
            os.read(goes_on, 1)
        elif child:
            children.append(child)

    def clock():
        if inside:
            inside.clear()
            signal.raise_signal(signal.SIGALRM)
        return datetime.now(UTC)

    signal.signal(signal.SIGALRM, fork)
    onefold = Onefold(f"sqlite:///{path}", clock=clock)
    onefold.enqueue("kept")
    goes_on, go = os.pipe()
    if moment == "writing":
        inside.append(True)
    else:
        locker.execute("begin immediate")
        signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        onefold.enqueue("kept")
    except UsageError:
        os._exit(7 * (os.getpid() != parent))
    assert os.getpid() == parent
    for _ in range(20):
        onefold.enqueue("kept")
    os.write(go, b"x")
    print(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
    onefold.enqueue("kept")
    onefold.close()
"""


@pytest.mark.parametrize("moment", ["writing", "waiting"])
def test_a_child_of_a_signal_handler_does_not_make_the_call_of_its_parent(
    moment: str, tmp_path: Path
) -> None:
    path = tmp_path / "app.db"

    assert run(INTERRUPTED, path, moment) == ["7"]

    with Onefold(f"sqlite:///{path}") as onefold:
        assert len(onefold.find()) == 23
