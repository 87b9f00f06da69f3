"""Kills a process before the n-th statement that it runs: SIGKILL, so that nothing tidies up.

The process is a child from a fork server that has opened nothing. Only there are the drivers' own
execute functions wrapped; every begin, commit and rollback goes through them, and counts.
"""

import os
import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest

from onefold.databases.postgres.libpq import LibpqSession
from tests.crash.scenario import Scenario
from tests.fixtures.place import Place
from tests.race.crew import DEADLINE, processes, warm
from tests.race.waiting import until

COMMENTS = re.compile(r"(\s|--[^\n]*\n)*")
READING = {"select", "pragma", "set", "show", "savepoint", "release", "rollback to"}


class Death(NamedTuple):
    """What a child had done when it died, or was done."""

    log: list[str]
    """The first word of each statement that was run."""
    finished: bool

    @property
    def committed(self) -> bool:
        """Whether anything that it wrote was committed."""
        begun = writing = False
        for word in self.log:
            if word == "commit" and writing:
                return True
            if word in {"begin", "commit", "rollback"}:
                begun, writing = word == "begin", False
            elif word not in READING:
                # Without a begin before it, a statement is committed by itself.
                if not begun:
                    return True
                writing = True
        return False


def kill_before(number: int, scenario: Scenario, place: Place) -> Death:
    """Run a scenario's act in a child that dies before its statement `number`."""
    context = processes()
    ours, theirs = context.Pipe(duplex=False)
    name = f"crash_{uuid4().hex[:12]}"
    child = context.Process(target=_live, args=(theirs, scenario, place.named(name), number))
    child.start()
    theirs.close()
    log: list[str] = []
    for word in _words(ours):
        if isinstance(word, Exception):
            raise word
        log.append(word)
    child.join(DEADLINE)
    finished = child.exitcode == 0
    assert finished or child.exitcode == -signal.SIGKILL, f"the child exited with {child.exitcode}"
    child.close()
    if place.on_postgres:
        until(lambda: not _is_connected(place, name), "for the server to notice the death")
    return Death(log, finished)


def _words(pipe: Connection) -> Iterator[Any]:
    while True:
        if not pipe.poll(DEADLINE):
            pytest.fail("the child neither died nor ended")
        try:
            yield pipe.recv()
        except EOFError:
            return


def _is_connected(place: Place, name: str) -> bool:
    query = f"select count(*) from pg_stat_activity where application_name = '{name}'"
    return place.rows(query) != [(0,)]


def _live(pipe: Connection, scenario: Scenario, place: Place, number: int) -> None:
    watch = Watch(pipe, number)
    watch.wrap_drivers()
    try:
        with scenario.open(place) as onefold:
            if scenario.migrated:
                warm(onefold)
            watch.armed = True
            scenario.act(onefold, place)
            watch.armed = False
    except Exception as error:  # noqa: BLE001 - for the parent to raise
        pipe.send(error)


class Watch:
    """Counts statements, and knows when it is time."""

    def __init__(self, pipe: Connection | None, number: int) -> None:
        """`pipe` is told each statement before it is run."""
        self.armed = False
        self._pipe = pipe
        self._left = number

    def tick(self, statement: object, parameters: object = None) -> None:
        """Called before each statement."""
        if not self.armed:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._pipe is not None:
            self._pipe.send(first_word(statement))

    def wrap_drivers(self) -> None:
        """In this process only, and for good: it has not long to live."""
        watch = self

        class Watched(sqlite3.Connection):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options)
                self.set_trace_callback(watch.tick)

        connect: Callable[..., sqlite3.Connection] = sqlite3.connect

        def watched_connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
            return connect(*arguments, **{**options, "factory": Watched})

        sqlite3.connect = watched_connect  # type: ignore[assignment] # pyright: ignore[reportAttributeAccessIssue]
        for cursor in (psycopg.Cursor, psycopg.AsyncCursor):
            wrap(cursor, "execute", self.tick)
        wrap(LibpqSession, "request", self.tick)
        # What psycopg says by itself: the begin and commit of its transaction blocks.
        wrap(psycopg.Connection, "_exec_command", self.tick)


def wrap(kind: type, name: str, before: Callable[..., None]) -> None:
    """Call `before` with the arguments of a method, and then the method."""
    method = getattr(kind, name)

    def wrapped(self: Any, *arguments: Any, **options: Any) -> Any:
        before(*arguments)
        return method(self, *arguments, **options)

    setattr(kind, name, wrapped)


def first_word(statement: object) -> str:
    """`insert`, `commit`, and so on, in small letters."""
    text = statement.decode() if isinstance(statement, bytes) else str(statement)
    word = re.match(r"rollback to|\w*", COMMENTS.sub("", text, count=1))
    return word.group().lower() if word else ""
