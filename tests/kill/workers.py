"""Worker processes: started in a moment, told how to die, and killed, stopped and woken up."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.patience import HANG, LOCK, until
from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.fixtures.shards import found
from tests.kill import audit
from tests.kill.deaths import NEVER, Death
from tests.kill.jobs import Scene, declare
from tests.kill.ledger import Ledger
from tests.race.crew import processes

__all__ = ["until"]

PATIENCE = HANG
LEASE = timedelta(seconds=1)

at_length = pytest.mark.timeout(repetitions(900, soak=7_200))
"""For tests that kill and wait for leases to end, again and again."""


def work(place: Place, ledger: Ledger, death: Death, options: dict[str, Any]) -> None:
    """The life of a worker process."""
    with place.open() as onefold:
        declare(onefold, Scene(place, ledger, death))
        death.arm(onefold)
        onefold.run_worker(**options)


def _live(target: Callable[..., None], *arguments: object) -> None:
    """The life of any process of ours: it ends with the run of the tests, however that ends."""
    threading.Thread(target=end_with_the_run, daemon=True).start()
    target(*arguments)


def end_with_the_run() -> None:
    """For a thread: nobody is left behind."""
    run = parent_process()
    assert run is not None
    wait([run.sentinel])
    os._exit(1)


class Worker:
    """One process, as its operator sees it."""

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        self._process = processes().Process(target=_live, args=(target, *arguments))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.dies()

    def dies(self) -> None:
        """Come back when it has been killed, by itself or by anybody."""
        self._process.join(PATIENCE)
        assert self._process.exitcode == -signal.SIGKILL, self._process.exitcode

    def end(self) -> None:
        """Kill it, unless it is dead already."""
        self._process.kill()
        self.dies()

    def stop(self) -> None:
        """Stop it as an operator does."""
        self.signal(signal.SIGTERM)
        self._process.join(PATIENCE)
        # By the signal itself, where it came before the worker had begun to listen.
        assert self._process.exitcode in {0, -signal.SIGTERM}, self._process.exitcode

    def clean_up(self) -> None:
        """Whatever is left of it."""
        self._process.kill()
        self._process.join()
        self._process.close()


class Shop:
    """A database, a ledger, and the workers of one test."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.ledger = Ledger(folder / "ledger")
        self._workers: list[Worker] = []
        audit.install(place)

    def start(self, death: Death = NEVER, *, place: Place | None = None, **options: Any) -> Worker:
        """A worker with all handlers; `place` is another way to the same database."""
        options = {
            "lease": LEASE, "poll": timedelta(milliseconds=200), "concurrency": 4,
            "grace": LOCK, **options,
        }  # fmt: skip
        return self.hire(work, place or self.place, self.ledger, death, options)

    def hire(self, target: Callable[..., None], *arguments: object) -> Worker:
        """A process of any other sort."""
        self._workers.append(Worker(target, *arguments))
        return self._workers[-1]

    def drain(self, *queues: str, **options: Any) -> None:
        """Have a healthy worker do all that is left."""
        worker = self.start(queues=queues or ("default",), concurrency=8, **options)
        until(lambda: not audit.unfinished(self.place), "for all jobs to end")
        worker.stop()

    def clear(self) -> None:
        """Forget all that was done, for another round."""
        for worker in self._workers:
            worker.clean_up()
        self._workers.clear()
        self.ledger.path.unlink(missing_ok=True)
        with self.place.connection() as connection:
            for name in ("job", "attempt", "claim"):
                connection.execute(f"delete from {self.place.table(name)}")
            connection.execute(f"delete from {self.place.effects}")

    def end_leases(self) -> None:
        """The time of everything that is running is over, as far as the database knows."""
        with self.place.connection() as connection:
            table = self.place.table("job")
            connection.execute(f"update {table} set lease_until = 1 where state = 1")
        with self.place.open() as onefold:
            onefold.deliveries.rescue()

    def has_lease(self, worker: str) -> bool:
        """Whether anything is still leased to a worker of this name."""
        now = time.time_ns() // 1_000
        query = "select count(*) from {job} where state = 1"
        held = f"{query} and worker = '{worker}' and lease_until > {now}"
        return self.place.rows(held) != [(0,)]

    def can_write(self) -> bool:
        """Whether nobody keeps all others from writing."""
        if self.place.on_postgres:
            return True
        with closing(self.place.connect(wait=timedelta(seconds=1))) as connection:
            try:
                connection.execute(self.place.begin)
            except sqlite3.OperationalError:
                return False
        return True

    def close(self) -> None:
        for worker in self._workers:
            worker.clean_up()


@contextmanager
def opened(place: Place, folder: Path) -> Generator[Shop]:
    """A shop for as long as it is needed."""
    shop = Shop(place, folder)
    try:
        yield shop
    finally:
        shop.close()


@pytest.fixture
def shop(place: Place, tmp_path: Path) -> Iterator[Shop]:
    """Each database in turn."""
    with opened(place, tmp_path) as shop:
        yield shop


@pytest.fixture
def postgres_shop(postgres_place: Place, tmp_path: Path) -> Iterator[Shop]:
    """PostgreSQL alone."""
    with opened(postgres_place, tmp_path) as shop:
        yield shop


@pytest.fixture
def sqlite_shop(sqlite_url: str, tmp_path: Path) -> Iterator[Shop]:
    """SQLite alone."""
    place = Place(sqlite_url)
    found(place, 1)
    with opened(place, tmp_path) as shop:
        yield shop
