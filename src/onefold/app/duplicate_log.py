"""`DuplicateLog`: notes about requests that a key has suppressed, written after the response.

A note waits in memory until a thread writes it with others. If the process is killed, or has too
many notes, notes are lost and nothing else. `close`, `why` of this process, and the end of its
main thread write the notes that wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Final, final

from onefold.operations import duplicate_notes
from onefold.operations.duplicate_notes import Note, notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onefold.databases import Database
    from onefold.model.claim import ClaimKey
    from onefold.model.job import Enqueued
    from onefold.model.new_job import Prepared
    from onefold.runtime import Runtime

PAUSE: Final = 0.25
"""Seconds for which notes are collected."""
LAST: Final = 0.75
"""Seconds for which a process that ends waits for them, after a pause."""
BATCH: Final = 1_000
MOST: Final = 50_000
"""Notes that may wait; further notes are dropped and counted."""
LONGEST: Final = 200
"""Characters of a request id."""

log: logging.Logger = logging.getLogger("onefold")


@final
class DuplicateLog:
    """The notes of this process that wait to be written."""

    def __init__(self, runtime: Runtime, now: Callable[[], int]) -> None:
        """A note belongs to the database that `runtime` has when the note is made."""
        self._runtime = runtime
        self._now = now
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        # Both are reentrant: a signal handler may note, or close, while either is held.
        self._mutex = threading.RLock()
        self._waiting: list[tuple[Database, Sequence[Note]]] = []
        """The notes of each call."""
        self._count = 0
        """How many notes wait."""
        self._dropped = 0
        self._is_gathering = False
        self._writing = threading.RLock()

    def note(self, key: ClaimKey, request_id: str | None = None) -> None:
        """Note that this key has just suppressed a request."""
        if request_id is not None:
            request_id = request_id[:LONGEST].replace("\0", "")
        self._add([Note(key, self._now(), request_id)])

    def note_jobs(self, items: Sequence[Prepared], answers: Sequence[Enqueued]) -> None:
        """Note the requests of a call that jobs have just suppressed."""
        if notes := notes_of(items, answers, self._now()):
            self._add(notes)

    def _add(self, notes: Sequence[Note]) -> None:
        if self._process != os.getpid():
            # A forked child has neither the threads nor the requests of its parent.
            self._begin()
        database = self._runtime.store.database
        with self._mutex:
            kept = notes[: MOST - self._count]
            if kept:
                self._waiting.append((database, kept))
            self._count += len(kept)
            self._dropped += len(notes) - len(kept)
            if self._is_gathering:
                return
            self._is_gathering = True
        writing = threading.Thread(target=self._gather, name="onefold-notes", daemon=True)
        try:
            writing.start()
            threading.Thread(
                target=_await, args=(writing,), name="onefold-notes-end", daemon=False
            ).start()
        except RuntimeError:  # Since Python 3.12, an interpreter that ends starts no thread.
            self.flush()
            self._is_gathering = False

    def _gather(self) -> None:
        while True:
            # Also between two writes, so that other statements get their turn.
            threading.main_thread().join(PAUSE)
            self.flush()
            with self._mutex:
                if not self._waiting:
                    self._is_gathering = False
                    return

    def flush(self) -> None:
        """Write the notes that wait now, and wait for the notes that are being written.

        Later notes are left, so that the call ends. On an error the rest is logged and dropped:
        the notes are not important enough to raise an error, and a close must not wait for the
        database once per batch.
        """
        if self._process != os.getpid():
            self._begin()
        with self._writing:
            for database, notes in self._taken():
                try:
                    for first in range(0, len(notes), BATCH):
                        batch = notes[first : first + BATCH]
                        database.transact(partial(duplicate_notes.note, notes=batch))
                except Exception as error:  # noqa: BLE001
                    log.warning(
                        "Suppressed duplicates could not be noted, and are not counted: %s", error
                    )

    async def aflush(self) -> None:
        """`flush`, awaited."""
        await asyncio.to_thread(self.flush)

    def _taken(self) -> list[tuple[Database, list[Note]]]:
        """The notes that wait, by database."""
        with self._mutex:
            taken, self._waiting = self._waiting, []
            self._count = 0
            dropped, self._dropped = self._dropped, 0
        if dropped:
            log.warning(
                "%d suppressed duplicates are not counted: %d waited to be noted.", dropped, MOST
            )
        by_database: dict[int, tuple[Database, list[Note]]] = {}
        for database, notes in taken:
            by_database.setdefault(id(database), (database, []))[1].extend(notes)
        return list(by_database.values())


def _await(writing: threading.Thread) -> None:
    """Keep the process until its notes are written, but not long for a database that is locked."""
    main = threading.main_thread()
    while writing.is_alive() and main.is_alive():
        writing.join(PAUSE)
    writing.join(LAST)
