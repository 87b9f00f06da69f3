"""How a process notices that the one which started it is gone, however it went.

A worker's process has one end of a pipe whose other end closes with its supervisor. A server's
process, which is started by granian, looks at the number of its parent.

The supervisor: keeps several worker processes running.

1. A process that ends without having been told to is started again, sooner or later by how often it
   happens. One that says its command must be changed (status 2) ends everything.
2. The first signal is passed on, and everything ends within the grace. The second kills.
3. When the supervisor itself is killed, its processes notice and stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

from onefold.worker.signals import SIGNALS

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Sequence
    from datetime import timedelta


LOOK: Final = 1.0
"""Seconds between two looks at the parent."""
MARGIN: Final = 5.0
"""Seconds beyond the grace after which a process that should have ended is ended."""


def hold(descriptor: int, grace: timedelta) -> None:
    """Stop when the supervisor is gone, as if it had said so; end at last, whatever happens."""
    # What handlers start must not hold the line, nor know of it.
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - its way
    threading.Thread(
        target=_wait, args=(descriptor, grace.total_seconds()), name="onefold-lifeline", daemon=True
    ).start()


def hold_to_parent(parent: int, grace: timedelta) -> None:
    """The same for a process that has no pipe. `parent` is the process that started it."""
    threading.Thread(
        target=_look, args=(parent, grace.total_seconds()), name="onefold-lifeline", daemon=True
    ).start()


def _wait(descriptor: int, grace: float) -> None:
    os.read(descriptor, 1)
    _end(grace)


def _look(parent: int, grace: float) -> None:
    # An orphan gets another parent.
    while os.getppid() == parent:
        time.sleep(LOOK)
    _end(grace)


def _end(grace: float) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace + MARGIN)
    os._exit(1)


FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
HEALTHY: Final = 60.0
"""Seconds after which a process is thought to be well, and what went before is forgotten."""
MUST_CHANGE: Final = 2
"""The status of a command that would fail again and again until somebody changes it."""

log: logging.Logger = logging.getLogger("onefold.supervisor")


class Supervisor:
    """Several processes of one command. For one run, in the main thread."""

    def __init__(
        self, command: Callable[[int, int], Sequence[str]], processes: int, grace: timedelta
    ) -> None:
        """`command` is given the number of a process, from 1, and its lifeline's descriptor."""
        self._command = command
        self._processes = processes
        self._grace = grace.total_seconds()
        self._stop = asyncio.Event()
        self._running: set[Process] = set()
        self._lifeline = -1
        self._killed_by: int | None = None

    def run(self) -> int:
        """Until a signal, or a reason to give up; answers with the status to exit with."""
        return asyncio.run(self._run())

    async def _run(self) -> int:
        self._lifeline, held = os.pipe()
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        try:
            numbers = range(1, self._processes + 1)
            statuses = await asyncio.gather(*map(self._keep, numbers))
        finally:
            os.close(self._lifeline)
            os.close(held)
        if self._killed_by is not None:
            return 128 + self._killed_by
        return max(statuses)

    async def _keep(self, number: int) -> int:
        """Have a process run, again and again, until told to stop."""
        pause = FIRST_PAUSE
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            status = await self._once(number)
            if self._stop.is_set():
                return 0 if status in {0, -signal.SIGTERM} else 1
            if status == MUST_CHANGE:
                log.error("Process %d cannot run as it was told to: ending.", number)
                self._end()
                return status
            if loop.time() - began >= HEALTHY:
                pause = FIRST_PAUSE
            log.warning("Process %d %s; starting another in %g s.", number, _ended(status), pause)
            if await self._stops_within(pause):
                return 0
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _once(self, number: int) -> int:
        """One life of a process; answers with its status, below 0 for a signal."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(number, self._lifeline),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(self._lifeline,),
                # A Ctrl-C in a terminal is for all of a group: it would come twice, from us too.
                process_group=0,
            )
        except OSError as error:
            log.error("Process %d could not be started: %s", number, error)  # noqa: TRY400
            return 1
        log.info("Process %d has started (pid %d).", number, process.pid)
        self._running.add(process)
        if self._stop.is_set():
            process.terminate()
        try:
            return await process.wait()
        finally:
            self._running.discard(process)

    async def _stops_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _signalled(self, number: int) -> None:
        if self._stop.is_set():
            log.warning("A second signal: killing what still runs.")
            self._killed_by = number
            self._kill()
        else:
            name = signal.Signals(number).name
            log.info("%s: stopping. A second signal kills what still runs.", name)
            self._end()

    def _end(self) -> None:
        self._stop.set()
        for process in self._running:
            process.terminate()
        asyncio.get_running_loop().call_later(self._grace + MARGIN, self._kill_late)

    def _kill_late(self) -> None:
        if self._running:
            log.error("%d processes have not ended in their grace: killing.", len(self._running))
            self._kill()

    def _kill(self) -> None:
        for process in self._running:
            process.kill()


def _ended(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"has ended with status {status}"
