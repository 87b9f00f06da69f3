"""The processes of the demo: real ones, so that they can race, be killed and be frozen."""

from __future__ import annotations

import logging
import os
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
    from signal import Signals
    from threading import Barrier

    from onefold import Enqueued


class PromiseBroken(OnefoldError):
    """A fact of the demo does not hold."""

    def __init__(self, fact: str) -> None:
        """`fact` is the sentence that does not hold."""
        super().__init__(f"This should be true but is not: {fact}. Please report it.", fact=fact)


# Spawn: a forked child would share the open files of its parent.
CONTEXT = get_context("spawn")
TIMEOUT = 30.0
"""Seconds to wait for a process."""


class DemoProcess:
    """A process with one task, and a pipe to it."""

    def __init__(self, process: BaseProcess, pipe: Connection[Any, Any]) -> None:
        """Made by `started`."""
        self._process = process
        self._pipe = pipe

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid or 0

    def receive(self) -> Any:
        """Its next message."""
        if not self._pipe.poll(TIMEOUT):
            raise PromiseBroken(f"process {self.pid} answers within {TIMEOUT:g} seconds")
        return self._pipe.recv()

    def proceed(self) -> None:
        """Let it continue after its message."""
        self._pipe.send("proceed")

    def signal(self, number: Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def end(self, number: Signals) -> int | None:
        """End it by a signal; returns its exit code."""
        self.signal(number)
        self._process.join(TIMEOUT)
        return self._process.exitcode


@contextmanager
def started(target: Callable[..., None], *arguments: object) -> Generator[DemoProcess]:
    """Start a process; `target` receives the arguments, then its end of the pipe.

    It is killed at the end, even if it is frozen.
    """
    ours, theirs = CONTEXT.Pipe()
    process: BaseProcess = CONTEXT.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield DemoProcess(process, ours)
    finally:
        process.kill()
        process.join(TIMEOUT)
        ours.close()


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
        barrier.wait(TIMEOUT)
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
