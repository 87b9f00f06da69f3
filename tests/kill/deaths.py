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
from typing import Any, NamedTuple, cast

import psycopg

from onefold import Onefold, Run
from onefold.databases.postgres import transaction
from onefold.databases.postgres.exchanges import PostgresExchanges
from onefold.events import Event, JobEnded, JobStarted
from onefold.operations.statement import Statement, array_literal
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
    """Where it is given, the process is stopped at its moment or its statement, once, and says so
    by this file."""
    number: int = 0
    """Die before the statement with this number."""
    event: Any = None
    """Die when it is told."""

    def reach(self, moment: str, run: Run) -> bool:
        """A handler has come this far; True where it is to wait here."""
        if moment != self.moment or run.fence > 1:
            return False
        if self.frozen is not None:
            if not self.frozen.exists():
                self.frozen.touch()
                os.kill(os.getpid(), signal.SIGSTOP)
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
            transaction.AWAKE = "1000"  # type: ignore[misc]
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
        self._is_sent = False
        """True if that statement was an exchange, which commits by itself."""

    def wrap_drivers(self) -> None:
        super().wrap_drivers()
        wrap(psycopg.AsyncConnection, "_exec_command", self.tick)
        wrap(PostgresExchanges, "_send_one", self._tick_exchange)
        wrap(PostgresExchanges, "_read", self._tick_response)

    def tick(self, statement: object, parameters: object = None) -> None:
        super().tick(statement)
        text = statement.decode() if isinstance(statement, bytes) else str(statement)
        if self._seen and first_word(text) == "commit":
            self._strike()
        elif self._is_awaited(text, parameters):
            self._seen = True
            if not self._death.inside:
                self._strike()

    def _tick_exchange(self, statement: Statement, _: object) -> None:
        seen = self._seen
        self.tick(statement.text, statement.arrays(array_literal))
        self._is_sent = self._is_sent or self._seen != seen

    def _tick_response(self) -> None:
        """The worker dies before it knows of the commit."""
        if self._is_sent:
            self._strike()

    def _is_awaited(self, text: str, parameters: object) -> bool:
        wanted = self._death.statement
        if not wanted or not re.search(wanted, text):
            return False
        given = cast("dict[str, Any]", parameters) if isinstance(parameters, dict) else {}
        if not {"id", "limit"} <= given.keys():
            return True
        # One statement finishes and takes, and either part may be empty.
        return bool(given["limit"]) if wanted == TAKE else given["id"] != "{}"

    def _strike(self) -> None:
        frozen, self._death = self._death.frozen, NEVER
        self._seen = self._is_sent = False
        if frozen is None:
            die()
        else:
            frozen.touch()
            os.kill(os.getpid(), signal.SIGSTOP)


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
