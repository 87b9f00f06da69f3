"""Workers that die in the middle of a handler: SIGKILL, before any line of it or any write.

A worker is a process of its own, from a fork server that has opened nothing. The handlers know
nothing of it: their lines are seen by a trace function, and what they write by the drivers.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from onefold import Onefold
from tests.crash.injector import READING, Watch, first_word
from tests.examples.stories import World
from tests.race.crew import DEADLINE, processes
from tests.worker.stage import QUICK, until, working

NEVER = sys.maxsize


class Moments(Watch):
    """Counts what a handler does from its first line on."""

    count = 0

    def tick(self, statement: object, parameters: object = None) -> None:
        """A death before a read is no other than one after what came before it."""
        if first_word(statement) not in {*READING, "begin"}:
            self.count += self.armed
            super().tick(statement, parameters)

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        """For `sys.settrace`: sees calls, and the lines of those that are the examples' own."""
        if not frame.f_globals.get("__name__", "").startswith("examples."):
            return None
        if event == "line":
            self.armed = True
            self.tick("line")
        return self.trace


def work(world: World, job_ids: list[str], *, dies_at: int = NEVER) -> int | None:
    """Let a worker run these jobs; how many moments that took, or None where it has died."""
    context = processes()
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_live, args=(theirs, world.environment, job_ids, dies_at))
    child.start()
    theirs.close()
    if not ours.poll(DEADLINE):
        child.kill()
    child.join()
    died = child.exitcode == -signal.SIGKILL
    assert died or child.exitcode == 0, f"the worker ended with {child.exitcode}"
    child.close()
    assert not died or dies_at != NEVER, f"the worker was not done after {DEADLINE:g} seconds"
    return None if died else ours.recv()


def _live(pipe: Connection, environment: dict[str, str], job_ids: list[str], number: int) -> None:
    logging.disable(logging.CRITICAL)
    os.environ.update(environment)
    moments = Moments(None, number)
    moments.wrap_drivers()
    onefold = import_module("examples.handlers").onefold
    # For what is called from here on: the event loop's own, and what runs in threads.
    sys.settrace(moments.trace)
    threading.settrace(moments.trace)
    # Whoever is to die does not rescue: what died before it is left to the last.
    asyncio.run(_until_ended(onefold, job_ids, chores=number == NEVER))
    pipe.send(moments.count)


async def _until_ended(onefold: Onefold, job_ids: list[str], *, chores: bool) -> None:
    # Few at once: a handler that holds a lock must come to its next line before that ends.
    async with onefold, working(onefold, lease=QUICK, concurrency=4, chores=chores):
        for job_id in job_ids:
            await until(partial(_has_ended, onefold, job_id), patience=DEADLINE)


async def _has_ended(onefold: Onefold, job_id: str) -> bool:
    job = await onefold.aget(job_id)
    return job is not None and job.state in {"completed", "dead", "cancelled"}
