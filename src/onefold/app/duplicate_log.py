"""Notes of requests that a key has kept away, written after they were answered.

1. Who is kept away is answered by one look; the note of it waits in memory, and is written a moment
   later, with others, by a thread of its own.
2. Nothing is lost but a note: of a process that dies, or of one that is flooded. `close` writes
   what waits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Final, final

from onefold.operations import stored_keys
from onefold.operations.stored_keys import Note

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.databases import Build, Database, Store
    from onefold.model.claim import ClaimKey

PAUSE: Final = 0.25
"""Seconds in which notes are gathered."""
BATCH: Final = 1_000
MOST: Final = 10_000
"""Notes that wait; what comes beyond is not noted."""
LONGEST: Final = 200
"""Characters of a request's id."""

log: logging.Logger = logging.getLogger("onefold")


@final
class DuplicateLog:
    """What waits to be written, in this process."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        """A note belongs to the database that `store` has at the time it is made."""
        self._store = store
        self._now = now
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        # Reentrant, both: a signal handler may note, or close, in the middle of either.
        self._mutex = threading.RLock()
        self._waiting: list[tuple[Database, Note]] = []
        self._is_gathering = False
        self._writing = threading.RLock()

    def note(self, key: ClaimKey, request_id: str | None = None) -> None:
        """Somebody was kept away by this key just now."""
        if self._process != os.getpid():
            # A forked child has none of its parent's threads, and none of its requests.
            self._begin()
        told = None if request_id is None else request_id[:LONGEST].replace("\0", "")
        note = Note(key, self._now(), told)
        with self._mutex:
            if len(self._waiting) >= MOST:
                return
            self._waiting.append((self._store.database, note))
            if self._is_gathering:
                return
            self._is_gathering = True
        threading.Thread(target=self._gather, name="onefold-notes", daemon=True).start()

    def _gather(self) -> None:
        while True:
            # Between two writes as well: others want to write, and to ask what was written.
            time.sleep(PAUSE)
            self.flush()
            with self._mutex:
                if not self._waiting:
                    self._is_gathering = False
                    return

    def flush(self) -> None:
        """Write what waits now, and wait for what is being written.

        Not what comes meanwhile: in a flood that would have no end. What cannot be written is
        logged and forgotten, with the rest: nobody waits for a note, its thread has nobody to raise
        to, and a close is not to wait for a database once a batch.
        """
        if self._process != os.getpid():
            self._begin()
        with self._writing:
            for database, batches in self._taken():
                try:
                    for build in batches:
                        database.transact(build)
                except Exception as error:  # noqa: BLE001
                    _failed(error)

    async def aflush(self) -> None:
        """`flush`, awaited."""
        await asyncio.to_thread(self.flush)

    def _taken(self) -> list[tuple[Database, list[Build[None]]]]:
        with self._mutex:
            taken, self._waiting = self._waiting, []
        notes_of: dict[int, tuple[Database, list[Note]]] = {}
        for database, note in taken:
            notes_of.setdefault(id(database), (database, []))[1].append(note)
        return [(database, _batches(notes)) for database, notes in notes_of.values()]


def _batches(notes: list[Note]) -> list[Build[None]]:
    return [_build(notes[first : first + BATCH]) for first in range(0, len(notes), BATCH)]


def _build(notes: list[Note]) -> Build[None]:
    return lambda sql: stored_keys.note(sql, notes)


def _failed(error: Exception) -> None:
    log.warning("Suppressed duplicates could not be noted, and are not counted: %s", error)
