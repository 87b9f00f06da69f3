"""Several shards: each is visited by itself, and one that fails does not stop the others.

A shard that fails is left out for a while and then tried again. With one shard there is nothing to
leave out, and errors are the caller's.
"""

from __future__ import annotations

import logging
import random
import time
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar, cast

from msgspec import Struct

from onefold.model.ids import shard_of
from onefold.runtime import Procedure, Runtime, transact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from onefold.databases import Build
    from onefold.operations.statement import Operation, Sql

T = TypeVar("T")
ItemT = TypeVar("ItemT")

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds for which a shard is left out. The longest is a part of a minute's work: each try may
wait as long as the busy timeout."""

log: logging.Logger = logging.getLogger("onefold.worker")


class _Fault(Struct):
    pause: float
    until: float


class Shards:
    """The shards of a database, and which of them fail at what.

    Faults are kept for each activity: a shard that can be read may fail at writes. The first fault
    of a shard is logged, and the end of the last one. For threads and tasks of one process.
    """

    def __init__(self, runtime: Runtime, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Without faults."""
        self._runtime = runtime
        self._clock = clock
        self._faults: dict[tuple[int, str], _Fault] = {}
        self._lock = Lock()

    @property
    def number(self) -> int:
        """How many there are. One until the identity of the database is known."""
        return self._runtime.store.database.sql.shards

    def usable(self, activity: str, shards: Iterable[int] | None = None) -> list[int]:
        """The shards that are not left out of an activity; of all, or of some."""
        if not self._faults:
            return list(range(self.number) if shards is None else shards)
        now = self._clock()
        return [
            shard
            for shard in (range(self.number) if shards is None else shards)
            if (fault := self._faults.get((shard, activity))) is None or fault.until <= now
        ]

    def failed(self, shard: int, activity: str, error: Exception) -> None:
        """Leave a shard out of an activity for a while, longer each time."""
        with self._lock:
            is_new = all(known != shard for known, _ in self._faults)
            before, now = self._faults.get((shard, activity)), self._clock()
            # Two visits may have been under way at once.
            if before is None or before.until <= now:
                pause = FIRST_PAUSE if before is None else min(before.pause * 2, LONGEST_PAUSE)
                until = now + pause * (0.75 + random.random() / 2)
                self._faults[shard, activity] = _Fault(pause, until)
        if is_new:
            log.warning(
                "Shard %d fails (%s) and is tried again later; other shards go on: %s",
                shard, activity, str(error).partition("\n")[0],
            )  # fmt: skip

    def worked(self, shard: int, activity: str) -> None:
        """Use a shard again. Faults of activities that have not been tried for long are over."""
        if not self._faults:
            return
        with self._lock:
            now, mine = self._clock(), [key for key in self._faults if key[0] == shard]
            over = [
                key
                for key in mine
                if key[1] == activity or self._faults[key].until + self._faults[key].pause < now
            ]
            for key in over:
                del self._faults[key]
        if over and len(over) == len(mine):
            log.info("Shard %d works again.", shard)

    def visit(
        self, shard: int, activity: str, build: Build[T], *, write: bool = True
    ) -> Procedure[tuple[T | None, Exception | None]]:
        """Run an operation on one shard: its result, or its error."""
        try:
            result = yield from transact(_on(build, [shard]), write=write)
        except Exception as error:  # noqa: BLE001 - a node may report anything
            self.failed(shard, activity, error)
            return None, error
        self.worked(shard, activity)
        return result, None

    def each(self, activity: str, build: Callable[[int], Procedure[T]]) -> Procedure[list[T]]:
        """Run a procedure for each shard; raises if all fail."""
        if self.number == 1:
            return [(yield from build(0))]
        results: list[T] = []
        failure: Exception | None = None
        for shard in self.usable(activity):
            try:
                results.append((yield from build(shard)))
            except Exception as error:  # noqa: BLE001 - a node may report anything
                self.failed(shard, activity, error)
                failure = error
            else:
                self.worked(shard, activity)
        if failure is not None and not results:
            raise failure
        return results

    def read(self, activity: str, build: Build[T]) -> Procedure[T]:
        """Run an operation that reads all shards, at once; after an error, without those that fail.

        Raises if all fail.
        """
        if self.number == 1:
            return (yield from transact(build, write=False))
        wanted = self.usable(activity)
        try:
            result = yield from transact(_on(build, wanted), write=False)
        except Exception:
            working: list[int] = []
            for shard in wanted:
                _, error = yield from self.visit(shard, activity, build, write=False)
                working += [shard] if error is None else []
            if not working:
                raise
            result = yield from transact(_on(build, working), write=False)
        else:
            for shard in wanted:
                self.worked(shard, activity)
        return result

    def grouped(
        self, items: Sequence[ItemT], id_of: Callable[[ItemT], str]
    ) -> Iterator[tuple[int, list[int]]]:
        """The places of items in their sequence, by shard."""
        groups: dict[int, list[int]] = {}
        for place, item in enumerate(items):
            groups.setdefault(shard_of(id_of(item), self.number), []).append(place)
        # Those that failed last come last: they may have to be waited for.
        faulty = {shard for shard, _ in list(self._faults)}
        for shard in sorted(groups, key=lambda shard: (shard in faulty, shard)):
            yield shard, groups[shard]

    def report(
        self,
        activity: str,
        items: Sequence[ItemT],
        id_of: Callable[[ItemT], str],
        operation: Callable[[Sql, list[ItemT]], Operation[list[T]]],
        *,
        leave_out: bool = True,
    ) -> Procedure[tuple[list[T | None], Exception | None]]:
        """Run an operation on items, each shard in its own transaction.

        Returns None for the items of shards that fail or are left out, and the last error.
        """
        results: list[T | None] = [None] * len(items)
        failure: Exception | None = None
        for shard, places in self.grouped(items, id_of):
            if leave_out and not self.usable(activity, [shard]):
                continue
            here = [items[place] for place in places]
            done, error = yield from self.visit(shard, activity, partial(_run, operation, here))
            failure = error or failure
            for place, result in zip(places, done or (), strict=done is not None):
                results[place] = result
        return results, failure

    def report_all(
        self,
        activity: str,
        items: Sequence[ItemT],
        id_of: Callable[[ItemT], str],
        operation: Callable[[Sql, list[ItemT]], Operation[list[T]]],
    ) -> Procedure[list[T]]:
        """`report` for a caller that needs all answers: tries all shards, and raises afterwards."""
        if self.number == 1:
            listed = list(items)
            return (yield from transact(lambda sql: operation(sql, listed)))
        results, error = yield from self.report(activity, items, id_of, operation, leave_out=False)
        if error is not None:
            raise error
        return cast("list[T]", results)


def _run(
    operation: Callable[[Sql, list[ItemT]], Operation[T]], items: list[ItemT], sql: Sql
) -> Operation[T]:
    return operation(sql, items)


def _on(build: Build[T], shards: Iterable[int]) -> Build[T]:
    return lambda sql: build(sql.only(shards))
