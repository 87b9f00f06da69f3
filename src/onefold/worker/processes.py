"""A child process that runs handlers one after the other, for jobs with `isolation="process"`.

It finds the handler by its name, as a fresh interpreter would, and has its own connections. When
its parent goes, it goes too: nobody could tell what it has done.

Processes for handlers that must be killable, or that would keep all others from running.

A child runs one job at a time and is used again. One that crashes, or must be stopped, is killed;
it takes nobody with it, and another is started for the next job.
"""

from __future__ import annotations

import os
import signal
import threading
from datetime import datetime, timedelta
from importlib import import_module
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.effects.run import Run
from onefold.errors import InvalidInput, ProcessDied
from onefold.jobs.job_function import DeclaredJob
from onefold.model.job import Job
from onefold.model.lifecycle import Event
from onefold.worker import delivery_outcome
from onefold.worker.delivery_outcome import DeliveryOutcome
from onefold.worker.handlers import call

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from onefold.hooks import Hooks


class ChildTask(msgspec.Struct, frozen=True):
    """What a child is to run."""

    module: str
    name: str
    job: tuple[Any, ...]
    lease: timedelta
    worker: str
    timeout: timedelta | None = None
    """From when the handler is called: what comes before may take a while in a new process."""


class ChildResult(msgspec.Struct, frozen=True):
    """How it went."""

    event: str
    result: str | None = None
    after: int | None = None
    reason: str | None = None
    error: str | None = None
    error_type: str | None = None
    completed: bool = False
    """True where the handler's own transaction has completed the job."""


READY: Final = b""
BEGUN: Final = b"begun"
"""Said when the handler is about to be called."""
_orders = msgspec.msgpack.Decoder(ChildTask)


def main(connection: Connection, prepare: Callable[[Hooks], None] | None = None) -> None:
    """The life of a child."""
    # Signals go to the whole group of processes; what becomes of us is the parent's to say. Not
    # SIG_IGN, which programs that a handler starts would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    orders: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, orders), daemon=True).start()
    connection.send_bytes(READY)
    while True:
        order = _orders.decode(orders.get())
        answer = obey(order, lambda: connection.send_bytes(BEGUN), prepare)
        connection.send_bytes(msgspec.msgpack.encode(answer))


def _receive(connection: Connection, orders: SimpleQueue[bytes]) -> None:
    """Wait for orders while a handler runs, so that the end of the parent is noticed at once."""
    while True:
        try:
            orders.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)


def obey(
    order: ChildTask, begin: Callable[[], None], prepare: Callable[[Hooks], None] | None = None
) -> ChildResult:
    """Find the handler and call it."""
    job = Job.from_row(order.job)
    declared = find(order.module, order.name)
    hooks = declared.context.hooks
    if prepare is not None and hooks.in_processes is None:
        hooks.in_processes = prepare
        prepare(hooks)
    begin()
    deadline = None if order.timeout is None else datetime.now().astimezone() + order.timeout
    run = Run(declared.context, job, lease=order.lease, worker=order.worker, deadline=deadline)
    try:
        args, kwargs = declared.bind(job, run)
    except InvalidInput as error:
        return _answer(delivery_outcome.on_bad_payload(error), run)
    except Exception as error:  # noqa: BLE001 - a payload may run code of its types
        return _answer(delivery_outcome.on_error(error), run)
    word = call(declared, job, hooks, args, kwargs)
    return _answer(word, run)


def find(module: str, name: str) -> DeclaredJob[..., Any]:
    """The declared job of that name."""
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, DeclaredJob):
        raise InvalidInput("isolation", f"needs {module}.{name} to be the declared job itself")
    return found  # pyright: ignore[reportUnknownVariableType]


def _answer(word: DeliveryOutcome, run: Run) -> ChildResult:
    return ChildResult(
        word.event.name, word.result, word.after, word.reason, word.error, word.error_type,
        completed=run.completed,
    )  # fmt: skip


START: Final = 60.0
"""Seconds in which a process must have imported what it is to run."""

_answers = msgspec.msgpack.Decoder(ChildResult)


class Child:
    """One process, and the job that it runs now."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        over: Callable[[Child], None],
        prepare: Callable[[Hooks], None] | None,
    ) -> None:
        """Starts; `over` is told when it can take another job, or is gone."""
        self._loop = loop
        self._over = over
        # Imported by those who need it: it puts a module of its own beside the main one.
        from multiprocessing import get_context

        spawn = get_context("spawn")
        ours, theirs = spawn.Pipe()
        self._connection: Connection[Any, Any] = ours
        self._process = spawn.Process(
            target=main, args=(theirs, prepare), name="onefold-child", daemon=True
        )
        self._process.start()
        theirs.close()
        self._order: bytes | None = None
        self._is_ready = False
        self._late: TimerHandle | None = None
        self.begun: Callable[[], None] | None = None
        self.answered: Callable[[DeliveryOutcome, bool], None] | None = None
        """Told how the job went, and whether its own transaction has completed it."""
        self.is_gone: bool = False
        loop.add_reader(ours.fileno(), self._hear)

    def run(
        self,
        order: ChildTask,
        begun: Callable[[], None],
        answered: Callable[[DeliveryOutcome, bool], None],
    ) -> None:
        """Give it a job, at once or as soon as it has started."""
        self.begun, self.answered = begun, answered
        self._late = self._loop.call_later(START, self._bury)
        self._order = msgspec.msgpack.encode(order)
        if self._is_ready:
            self._send()

    def _send(self) -> None:
        order, self._order = self._order, None
        if order is not None:
            try:
                self._connection.send_bytes(order)
            except OSError:
                self._bury()

    def _hear(self) -> None:
        try:
            message = self._connection.recv_bytes()
        except (EOFError, OSError):
            self._bury()
            return
        if message == READY:
            self._is_ready = True
            self._send()
            return
        self._is_in_time()
        if message == BEGUN:
            if self.begun is not None:
                self.begun()
            return
        answer = _answers.decode(message)
        word = DeliveryOutcome(
            Event[answer.event], answer.result, answer.after, answer.reason, answer.error,
            answer.error_type,
        )  # fmt: skip
        self._answer(word, completed=answer.completed)
        self._over(self)

    def _is_in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()

    def _answer(self, word: DeliveryOutcome, *, completed: bool) -> None:
        answered, self.answered, self.begun = self.answered, None, None
        if answered is not None:
            answered(word, completed)

    def _bury(self) -> None:
        """It is gone: so is what it ran."""
        self.kill()
        self._process.join(timeout=1)
        self._answer(
            delivery_outcome.on_process_death(ProcessDied(self._process.exitcode)), completed=False
        )
        self._over(self)

    def kill(self) -> None:
        """Now, whatever it is doing."""
        if not self.is_gone:
            self.is_gone = True
            self._is_in_time()
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()
            self._process.kill()


class Processes:
    """Children, as many as have something to do, and those that wait for more."""

    def __init__(self, loop: AbstractEventLoop, hooks: Hooks) -> None:
        """No process is started yet."""
        self._loop = loop
        self._hooks = hooks
        self._idle: list[Child] = []
        self._all: set[Child] = set()

    def submit(
        self,
        order: ChildTask,
        begun: Callable[[], None],
        answered: Callable[[DeliveryOutcome, bool], None],
    ) -> Child:
        """Have a child run it; `begun` is told when the handler is called."""
        chosen = self._idle.pop() if self._idle else self._started()
        self._all.add(chosen)
        chosen.run(order, begun, answered)
        return chosen

    def _started(self) -> Child:
        return Child(self._loop, self._over, self._hooks.in_processes)

    def _over(self, chosen: Child) -> None:
        if chosen.is_gone:
            self._all.discard(chosen)
            if chosen in self._idle:
                self._idle.remove(chosen)
        elif chosen not in self._idle:
            self._idle.append(chosen)

    def kill(self, chosen: Child) -> None:
        """Stop what it runs; nothing is said about that any more."""
        chosen.answered = chosen.begun = None
        chosen.kill()
        self._all.discard(chosen)

    def close(self) -> None:
        """Kill all that are left."""
        for chosen in list(self._all):
            self.kill(chosen)
        self._idle.clear()
