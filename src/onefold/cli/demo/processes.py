"""The processes of the demo: real ones, so that they can race, be killed and be frozen."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
from contextlib import closing, contextmanager
from datetime import timedelta
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from onefold import Fixed, Onefold, Run
from onefold.errors import OnefoldError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from pathlib import Path
    from threading import Barrier

    from onefold import Enqueued


class PromiseBroken(OnefoldError):
    """A fact of the demo does not hold."""

    def __init__(self, fact: str) -> None:
        """`fact` is the sentence that does not hold."""
        super().__init__(f"This should be true but is not: {fact}. Please report it.", fact=fact)


# Spawn: a forked child would share the open files of its parent.
CONTEXT = get_context("spawn")
PATIENCE = 30.0
"""Seconds to wait for a process."""


class Actor:
    """A process with one task, and a pipe to it."""

    def __init__(self, play: Callable[..., None], *arguments: object) -> None:
        """Start it: `play` receives the arguments, then its end of the pipe."""
        self._ours, theirs = CONTEXT.Pipe()
        self._process: BaseProcess = CONTEXT.Process(
            target=play, args=(*arguments, theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid or 0

    def hear(self) -> Any:
        """Its next message."""
        if not self._ours.poll(PATIENCE):
            raise PromiseBroken(f"process {self.pid} answers within {PATIENCE:g} seconds")
        return self._ours.recv()

    def go_on(self) -> None:
        """Let it continue after its message."""
        self._ours.send("go on")

    def freeze(self) -> None:
        """Suspend it, like a paused machine."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume it."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> int | None:
        """End it with SIGKILL; returns its exit code."""
        self._process.kill()
        self._process.join(PATIENCE)
        return self._process.exitcode

    def stop(self) -> int | None:
        """End it with SIGTERM, as a service manager does; returns its exit code."""
        self._process.terminate()
        self._process.join(PATIENCE)
        return self._process.exitcode

    def close(self) -> None:
        """End the process, even if it is frozen."""
        self.kill()
        self._ours.close()


@contextmanager
def actor(play: Callable[..., None], *arguments: object) -> Generator[Actor]:
    """An actor that is closed in any case."""
    with closing(Actor(play, *arguments)) as started:
        yield started


def enqueue_event(onefold: Onefold, event: str, queue: str) -> Enqueued:
    """Enqueue an event, as the receiver of a webhook does for every delivery."""
    return onefold.enqueue(
        "stripe.process",
        {"event": event},
        queue=queue,
        unique_key=event,
        idempotency_key=event,
        backoff=Fixed(timedelta(0)),
    )


def deliver(url: str, event: str, queue: str, barrier: Barrier, parent: Connection) -> None:
    """Wait for the others, then enqueue the same event as they do."""
    with Onefold(url) as onefold:
        onefold.find(limit=1)  # open the file, as a running application has
        barrier.wait(PATIENCE)
        answer = enqueue_event(onefold, event, queue)
    parent.send((answer.id, answer.duplicate))


def invoice(url: str, path: Path, number: str, queue: str, parent: Connection) -> None:
    """Insert an invoice and enqueue its email in one transaction; wait before the commit."""
    with Onefold(url) as onefold, closing(sqlite3.connect(path)) as connection:
        connection.execute("insert into demo_invoice (number, total) values (?, 4200)", (number,))
        answer = onefold.within(connection).enqueue(
            "invoice.email", {"number": number}, queue=queue, unique_key=f"invoice:{number}"
        )
        parent.send((answer.id, answer.duplicate))
        parent.recv()
        connection.commit()
        parent.send("committed")


def work(url: str, queue: str, lease: timedelta, parent: Connection) -> None:
    """Take a job, wait for a message, and finish the job."""
    with Onefold(url) as onefold:
        (job,) = onefold.deliveries.take([queue], worker=f"process {os.getpid()}", lease=lease)
        parent.send((job.id, job.fence))
        parent.recv()
        (ended,) = onefold.deliveries.finish([job])
        parent.send(ended.status)


def run_worker(url: str, queue: str, lease: timedelta, parent: Connection) -> None:
    """A worker whose handler waits for a message between its insert and the commit."""
    logging.getLogger("onefold").addHandler(logging.NullHandler())  # the demo prints its own lines
    onefold = Onefold(url)

    @onefold.job
    def charge(run: Run, order: str) -> None:
        with run.transaction() as tx:
            tx.execute(
                "insert into demo_receipt (number, attempt) values (?, ?)", [order, run.attempt]
            )
            run.result = {"attempt": run.attempt}
            parent.send(run.attempt)
            parent.recv()

    onefold.run_worker(queues=[queue], lease=lease)
