"""A second call that waits for a first: started in a thread, and seen to wait. No sleeps.

PostgreSQL tells who waits (pg_stat_activity). SQLite has no such list: there the thread and our
writer's, which the call starts, are watched until one pauses because somebody else has the lock.
"""

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any, Generic, TypeVar
from uuid import uuid4

import psycopg
import pytest

from onefold import Job, Onefold, Within
from onefold.model.delivery import take_order
from onefold.operations import deliveries
from tests.fixtures.patience import until
from tests.fixtures.place import Place
from tests.race.crew import DEADLINE, warm

__all__ = ["until"]

T = TypeVar("T")


class Second(Generic[T]):
    """A call in a thread of its own, on an object of its own.

    with Second(place, lambda onefold: onefold.enqueue(…)) as second:
        second.is_waiting()
        …                            # what it waits for ends here
        second.answer()
    """

    def __init__(self, place: Place, work: Callable[[Onefold], T], **options: Any) -> None:
        self._place = place
        self._name = f"second_{uuid4().hex[:12]}"
        self._onefold = place.open(name=self._name, **options)
        warm(self._onefold)
        self._work = work
        self._pauses = threading.Event()
        self._thread = ThreadPoolExecutor(1)
        self._future: Future[T] = Future()

    def __enter__(self) -> "Second[T]":
        self._future = self._thread.submit(self._run)
        return self

    def _run(self) -> T:
        if not self._place.on_postgres:
            sys.setprofile(self._watch)
            threading.setprofile(self._watch)
        try:
            return self._work(self._onefold)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # pyright: ignore[reportArgumentType]

    def _watch(self, frame: FrameType, event: str, function: object) -> None:
        if event == "c_call" and function is time.sleep:
            self._pauses.set()

    def is_waiting(self) -> None:
        """Come back when the call waits for a lock that another transaction has."""
        if self._place.on_postgres:
            until(self._waits_in_postgres, "for the second call to wait for the first")
        else:
            assert self._pauses.wait(DEADLINE), "the second call did not wait for the first"
        assert not self._future.done()

    def _waits_in_postgres(self) -> bool:
        self._raise_what_it_raised()
        return waits_for_a_lock(self._place, self._name)

    def _raise_what_it_raised(self) -> None:
        if self._future.done():
            pytest.fail(f"it did not wait: {self._future.exception() or self._future.result()!r}")

    def answer(self) -> T:
        """What the call answered, now that nothing is in its way."""
        return self._future.result(DEADLINE)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.shutdown(wait=error is None)
        self._onefold.close()


def waits_for_a_lock(place: Place, name: str) -> bool:
    """Whether a connection of that name waits for another transaction."""
    with psycopg.connect(place.url, autocommit=True) as connection:
        query = (
            "select count(*) from pg_stat_activity where application_name = %s"
            " and wait_event_type = 'Lock' and cardinality(pg_blocking_pids(pid)) > 0"
        )
        row = connection.execute(query, [name]).fetchone()
        return row is not None and row[0] > 0


def take_within(within: Within, *, limit: int = 10) -> list[Job]:
    """A take whose transaction stays open: the engine's own calls commit theirs at once."""
    order = take_order(["default"], limit=limit, worker="first", lease=timedelta(hours=1))
    rows = within.context.store.transact(lambda sql: deliveries.take(sql, order))
    return [row.job() for row in rows]
