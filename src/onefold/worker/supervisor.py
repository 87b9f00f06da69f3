"""Keeps several worker processes running, and stops processes whose parent has ended.

1. A process that ends unexpectedly is started again, after a growing pause. Exit status 2 means
   that its command is wrong: then all processes are stopped.
2. The first signal is passed on, and all processes end within the grace. The second kills them.
3. When the supervisor is killed, its processes notice it by their parent id, and stop.
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


PARENT_CHECK: Final = 1.0
"""Seconds between two checks of the parent."""
MARGIN: Final = 5.0
"""Seconds after the grace until a process that has not ended is ended."""


def stop_with_parent(parent: int, grace: timedelta) -> None:
    """Send SIGTERM to this process when its parent has ended; exit after the grace.

    `parent` is the id of the process that started it.
    """
    threading.Thread(
        target=_wait, args=(parent, grace.total_seconds()), name="onefold-parent", daemon=True
    ).start()


def _wait(parent: int, grace: float) -> None:
    # A process whose parent ended gets another parent.
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace + MARGIN)
    os._exit(1)


FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
HEALTHY: Final = 60.0
"""Seconds after which a process counts as healthy: the next pause is short again."""
USAGE_ERROR: Final = 2
"""The exit status of a wrong command: another try would fail as well."""

log: logging.Logger = logging.getLogger("onefold.supervisor")


class Supervisor:
    """Several processes of one command. For one run, in the main thread."""

    def __init__(
        self, command: Callable[[int], Sequence[str]], processes: int, grace: timedelta
    ) -> None:
        """`command` receives the number of a process, from 1."""
        self._command = command
        self._processes = processes
        self._grace = grace.total_seconds()
        self._stop = asyncio.Event()
        self._running: set[Process] = set()
        self._killed_by: int | None = None

    def run(self) -> int:
        """Run until a signal or a usage error; returns the exit status."""
        return asyncio.run(self._run())

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        statuses = await asyncio.gather(*map(self._keep, range(1, self._processes + 1)))
        if self._killed_by is not None:
            return 128 + self._killed_by
        return max(statuses)

    async def _keep(self, number: int) -> int:
        """Start a process again and again until the stop."""
        pause = FIRST_PAUSE
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            status = await self._once(number)
            if self._stop.is_set():
                return 0 if status in {0, -signal.SIGTERM} else 1
            if status == USAGE_ERROR:
                log.error("Process %d was started with wrong options: stopping.", number)
                self._end()
                return status
            if loop.time() - began >= HEALTHY:
                pause = FIRST_PAUSE
            log.warning("Process %d %s; starting another in %g s.", number, _ended(status), pause)
            if await self._stops_within(pause):
                return 0
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _once(self, number: int) -> int:
        """Run a process once; returns its exit status, negative for a signal."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(number),
                stdin=asyncio.subprocess.DEVNULL,
                # Ctrl-C in a terminal signals the whole group, and we pass the signal on as well.
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
            log.warning("Second signal: killing the running processes.")
            self._killed_by = number
            self._kill()
        else:
            name = signal.Signals(number).name
            log.info("%s: stopping. A second signal kills the running processes.", name)
            self._end()

    def _end(self) -> None:
        self._stop.set()
        for process in self._running:
            process.terminate()
        asyncio.get_running_loop().call_later(self._grace + MARGIN, self._kill_late)

    def _kill_late(self) -> None:
        if self._running:
            log.error("%d processes have not ended in time: killing them.", len(self._running))
            self._kill()

    def _kill(self) -> None:
        for process in self._running:
            process.kill()


def _ended(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"has ended with status {status}"
