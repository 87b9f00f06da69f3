"""Moments at which a worker process kills itself: SIGKILL, so that nothing tidies up.

Handlers tell of the moments that are theirs, the worker's events of some, and the drivers of the
rest: in the doomed process alone their execute functions are wrapped, and statements are known by
what they do.
"""

import asyncio
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from onefold import Onefold, Run
from onefold.databases.postgres import transaction
from onefold.databases.postgres.exchanges import PostgresExchanges
from onefold.events import Event, JobEnded, JobStarted
from onefold.operations.statement import Statement
from tests.crash.injector import Watch, first_word, wrap
from tests.kill.jobs import die

TAKE = r"update\s+\S*job( as j)?\s+set\s+state = 1,"
FINISH = r"update\s+\S*job( as j)?\s+set\s+state = 2,"
HEARTBEAT = r"update\s+\S*job( as j)?\s+set\s+lease_until = "
RESCUE = r"j\.state = 1\s+and j\.lease_until <= "
LOOK_AGAIN = 0.01


class Death(NamedTuple):
    """What is to happen to a worker process, the first time that its moment comes."""

    moment: str = ""
    """Of a handler, in the first delivery of its job: the next one comes through."""
    gate: Path | None = None
    """Where it is given, a handler does not die at its moment: it waits until this file exists."""
    statement: str = ""
    """What a statement does, as a pattern: die before it; with `inside`, before its commit."""
    inside: bool = False
    frozen: Path | None = None
    """Where it is given, the process is stopped at its statement, and says so by this file."""
    number: int = 0
    """Die before the statement with this number."""
    event: Any = None
    """Die when it is told."""

    def reach(self, moment: str, run: Run) -> bool:
        """A handler has come this far; True where it is to wait here."""
        if moment != self.moment or run.fence > 1:
            return False
        if self.gate is None:
            die()
        return True

    def wait(self) -> None:
        while not self._is_open():
            threading.Event().wait(LOOK_AGAIN)

    async def await_(self) -> None:
        while not self._is_open():  # noqa: ASYNC110 - another process opens it
            await asyncio.sleep(LOOK_AGAIN)

    def open_gate(self) -> None:
        """Let those who wait go on."""
        assert self.gate is not None
        self.gate.touch()

    def _is_open(self) -> bool:
        return self.gate is not None and self.gate.exists()

    def arm(self, onefold: Onefold) -> None:
        """In the process that is to die."""
        if self.event is not None:
            onefold.subscribe(self._hear)
        if self.statement or self.number:
            # Seconds of a test, and not a quarter of a minute.
            transaction.AWAKE = b"set local idle_in_transaction_session_timeout = 1000"  # type: ignore[misc]
            watch = StatementWatch(self)
            watch.wrap_drivers()
            watch.armed = True

    def _hear(self, event: Event) -> None:
        if isinstance(event, self.event):
            die()


class StatementWatch(Watch):
    """Knows statements by what they do, too."""

    def __init__(self, death: Death) -> None:
        super().__init__(None, death.number)
        self._death = death
        self._seen = False

    def wrap_drivers(self) -> None:
        super().wrap_drivers()
        wrap(psycopg.AsyncConnection, "_exec_command", self.tick)
        wrap(PostgresExchanges, "_send_one", lambda statement: self.tick(_text_of(statement)))

    def tick(self, statement: object) -> None:
        super().tick(statement)
        text = statement.decode() if isinstance(statement, bytes) else str(statement)
        if self._seen and first_word(text) == "commit":
            self._strike()
        elif self._death.statement and re.search(self._death.statement, text):
            self._seen = True
            if not self._death.inside:
                self._strike()

    def _strike(self) -> None:
        frozen, self._death, self._seen = self._death.frozen, NEVER, False
        if frozen is None:
            die()
        else:
            frozen.touch()
            os.kill(os.getpid(), signal.SIGSTOP)


def _text_of(statement: object) -> str:
    assert isinstance(statement, Statement)
    return statement.text


NEVER = Death()
NOWHERE = Path("/nowhere")
"""A gate that never opens: handlers are held until the process dies."""

MOMENTS = {
    "before the take": Death(statement=TAKE),
    "after the take": Death(event=JobStarted),
    "when the handler begins": Death("began"),
    "in the middle of the effect": Death("inside"),
    "after the effect": Death("effected"),
    "before the finish": Death(statement=FINISH),
    "during the finish": Death(statement=FINISH, inside=True),
    "after the finish": Death(event=JobEnded),
    "before a heartbeat": Death("began", NOWHERE, statement=HEARTBEAT),
    "during a heartbeat": Death("began", NOWHERE, statement=HEARTBEAT, inside=True),
}
