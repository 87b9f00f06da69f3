"""Processes that write, fork, close and die, one step after the other, as a test says."""

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from onefold import UsageError
from tests.fixtures.patience import HANG
from tests.fixtures.place import Place
from tests.race.crew import processes

Colour: TypeAlias = Literal["sync", "async"]

ONCE: dict[str, Any] = {"unique_while": "exists"}


class Actor:
    """What one process does. It confirms jobs in a file, which survives its death."""

    def __init__(self, place: Place, ledger: Path, address: str) -> None:
        self.place = place
        self.ledger = ledger
        self.address = address
        self.onefold = place.open()
        self.wire: Connection | None = None
        self.own: list[Any] = []
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []

    def live(self, name: str) -> None:
        """Perform commands until the test hangs up."""
        if self.wire is not None:
            self.wire.close()  # the parent's: its end tells the test that the parent has died
        with Client(self.address) as wire, suppress(EOFError):
            self.wire = wire
            wire.send((name, os.getpid()))
            while True:
                command, arguments, options = wire.recv()
                wire.send(getattr(self, command)(*arguments, **options))
        os._exit(0)

    def write(self, key: str, colour: Colour = "sync") -> bool:
        """Store a job and confirm it. False if the database is refused."""
        try:
            if colour == "sync":
                stored = self.onefold.enqueue("job", unique_key=key, **ONCE)
            else:
                stored = asyncio.run(self.onefold.aenqueue("job", unique_key=key, **ONCE))
        except UsageError:
            return False
        self._confirm(key, inserted=stored.inserted)
        return True

    def read(self) -> bool:
        """Read. False if the database is refused."""
        try:
            self.onefold.find()
            asyncio.run(self.onefold.afind())
        except UsageError:
            return False
        return True

    def close(self) -> None:
        """Close the object. The next command uses another."""
        self.onefold.close()
        self.onefold = self.place.open()

    def begin_read(self) -> None:
        """Begin to read on a connection of the application's own."""
        connection = self.place.connect()
        connection.execute("begin")
        connection.execute(f"select count(*) from {self.place.table('job')}").fetchall()
        self.own.append(connection)

    def end_reads(self) -> None:
        """Close the connections of the application's own."""
        while self.own:
            self.own.pop().close()

    def begin_write(self, key: str) -> None:
        """Store a job in a transaction of the application's own, which a thread commits."""
        begun = threading.Event()

        def work() -> None:
            connection = self.place.connect()
            connection.execute(self.place.begin)
            stored = self.onefold.within(connection).enqueue("job", unique_key=key, **ONCE)
            begun.set()
            self.stop.wait()
            connection.execute("commit")
            self._confirm(key, inserted=stored.inserted)
            connection.close()

        self._start(work)
        begun.wait()

    def hammer(self, name: str) -> None:
        """Write without end, in a thread."""

        def work() -> None:
            number = 0
            while not self.stop.is_set():
                assert self.write(f"{name}-{number}", ("sync", "async")[number % 2])
                number += 1

        self._start(work)

    def rest(self) -> None:
        """End the threads after their commits."""
        self.stop.set()
        while self.threads:
            self.threads.pop().join()

    def fork(self, name: str, *, in_thread: bool) -> None:
        """Fork a child, which has a name and performs commands of its own."""

        def fork() -> None:
            if os.fork() == 0:
                # A thread of the parent may hold the lock of the event that the child inherits.
                self.threads, self.stop = [], threading.Event()
                self.live(name)

        if in_thread:
            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
        else:
            fork()

    def _confirm(self, key: str, *, inserted: bool) -> None:
        with self.ledger.open("a") as ledger:
            ledger.write(f"{key} {inserted:d}\n")

    def _start(self, work: Callable[[], None]) -> None:
        self.stop.clear()
        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()


def _live(place: Place, ledger: Path, address: str, name: str) -> None:
    Actor(place, ledger, address).live(name)


class Stage:
    """The processes of one history."""

    def __init__(self, place: Place, ledger: Path) -> None:
        self.place = place
        self.ledger = ledger
        self.ledger.touch()
        self._listener = Listener(family="AF_UNIX")
        self._wires: dict[str, Connection] = {}
        self._pids: dict[str, int] = {}
        self._joins: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            self.kill(name)
        for join in self._joins:
            join()
        self._listener.close()

    @property
    def names(self) -> list[str]:
        """The processes that live."""
        return list(self._pids)

    def start(self, name: str) -> None:
        """Start a process that has no parent among the others."""
        arguments = (self.place, self.ledger, self._listener.address, name)
        process = processes().Process(target=_live, args=arguments)
        process.start()
        self._joins.append(process.join)
        self._welcome()

    def fork(self, parent: str, child: str, *, in_thread: bool = False) -> None:
        """Let a process fork."""
        self.tell(parent, "fork", child, in_thread=in_thread)
        self._welcome()

    def tell(self, name: str, command: str, *arguments: Any, **options: Any) -> Any:
        """Let a process perform a command, to its end."""
        wire = self._wires[name]
        wire.send((command, arguments, options))
        assert wire.poll(HANG), f"{name} hangs in {command}"
        return wire.recv()

    def kill(self, name: str) -> None:
        """Kill a process."""
        os.kill(self._pids.pop(name), signal.SIGKILL)
        wire = self._wires.pop(name)
        with suppress(EOFError, ConnectionError):
            assert wire.poll(HANG)
            wire.recv()  # The end of its connections is its end.
        wire.close()

    def audit(self) -> None:
        """Each confirmed job is stored once, each key was inserted once, the file is sound."""
        stored = Counter(key for (key,) in self.place.rows("select unique_key from {job}"))
        lines = [line.rsplit(" ", 1) for line in self.ledger.read_text().splitlines()]
        inserted = Counter(key for key, inserted in lines if inserted == "1")
        assert {key for key, _ in lines} <= stored.keys()
        assert set(stored.values()) <= {1}
        assert set(inserted.values()) <= {1}
        if not self.place.on_postgres:
            assert self.place.rows("pragma integrity_check") == [("ok",)]

    def _welcome(self) -> None:
        wire = self._listener.accept()
        name, pid = wire.recv()
        self._wires[name], self._pids[name] = wire, pid
