"""Child processes for handlers with `isolation="process"`: they can be killed, and block nothing.

A child imports the handler by name, has its own connections, and runs one job at a time. It ends
with its parent. One that crashes, or must be stopped, is killed, and another is started.
"""

from __future__ import annotations

import atexit
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
from onefold.model.job import JobRow
from onefold.worker import delivery_outcome
from onefold.worker.delivery_outcome import DeliveryOutcome
from onefold.worker.executor import HeldDelivery, call, lease_time

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from onefold.hooks import Hooks
    from onefold.worker.settings import WorkerSettings


class ChildTask(msgspec.Struct, frozen=True):
    """A job for a child."""

    module: str
    name: str
    job: JobRow
    lease: timedelta
    worker: str
    timeout: timedelta | None = None
    """Counts from the call of the handler: the start of a process may take a while."""


class ChildResult(msgspec.Struct, frozen=True):
    """The outcome of the job."""

    outcome: DeliveryOutcome
    completed: bool
    """True if the handler's own transaction has completed the job."""


READY: Final = b""
BEGUN: Final = b"begun"
"""Sent before the handler is called."""
_tasks = msgspec.msgpack.Decoder(ChildTask)


def main(connection: Connection, prepare: Callable[[Hooks], None] | None = None) -> None:
    """Run tasks until the parent ends."""
    # A signal goes to the whole process group, and the parent decides when a child ends. Not
    # SIG_IGN, because programs that a handler starts would inherit it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    messages: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, messages), daemon=True).start()
    connection.send_bytes(READY)
    while True:
        task = _tasks.decode(messages.get())
        result = run_task(task, lambda: connection.send_bytes(BEGUN), prepare)
        connection.send_bytes(msgspec.msgpack.encode(result))


def _receive(connection: Connection, messages: SimpleQueue[bytes]) -> None:
    """Read while a handler runs, too, so that the end of the parent is noticed at once."""
    while True:
        try:
            messages.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)


def run_task(
    task: ChildTask, begin: Callable[[], None], prepare: Callable[[Hooks], None] | None = None
) -> ChildResult:
    """Find the handler and call it."""
    declared = find(task.module, task.name)
    held = HeldDelivery(task.job, declared)
    hooks = declared.context.hooks
    if prepare is not None and hooks.in_processes is None:
        hooks.in_processes = prepare
        prepare(hooks)
    begin()
    deadline = None if task.timeout is None else datetime.now().astimezone() + task.timeout
    run = Run(declared.context, held.job, lease=task.lease, worker=task.worker, deadline=deadline)
    try:
        args, kwargs = declared.bind(held.row, run)
    except InvalidInput as error:
        outcome = delivery_outcome.on_bad_payload(error)
    except Exception as error:  # noqa: BLE001 - decoding a payload may run application code
        outcome = delivery_outcome.on_error(error)
    else:
        outcome = call(held, hooks, args, kwargs)
    return ChildResult(outcome, run.completed)


def find(module: str, name: str) -> DeclaredJob[..., Any]:
    """The declared job of that name."""
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, DeclaredJob):
        raise InvalidInput("isolation", f"needs {module}.{name} to be the declared job itself")
    return found  # pyright: ignore[reportUnknownVariableType]


START: Final = 60.0
"""Seconds in which a process must have started and imported the handler."""

_results = msgspec.msgpack.Decoder(ChildResult)


class Child:
    """One process, and the job that it runs now."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        idle: Callable[[Child], None],
        prepare: Callable[[Hooks], None] | None,
    ) -> None:
        """Starts the process; `idle` is called when it can run another job, or has ended."""
        self._loop = loop
        self._idle = idle
        # Imported only here: it adds a second main module to the process.
        from multiprocessing import get_context

        spawn = get_context("spawn")
        ours, theirs = spawn.Pipe()
        self._connection: Connection[Any, Any] = ours
        self._process = spawn.Process(
            target=main, args=(theirs, prepare), name="onefold-child", daemon=True
        )
        self._process.start()
        atexit.register(self._exit)
        theirs.close()
        self._task: bytes | None = None
        self._held: HeldDelivery | None = None
        self._is_ready = False
        self._timer: TimerHandle | None = None
        self.begun: Callable[[], None] | None = None
        self.ended: Callable[[DeliveryOutcome, bool], None] | None = None
        """Receives the outcome, and whether its own transaction has completed the job."""
        self.is_gone: bool = False
        loop.add_reader(ours.fileno(), self._receive)

    def run(
        self,
        held: HeldDelivery,
        task: ChildTask,
        begun: Callable[[], None],
        ended: Callable[[DeliveryOutcome, bool], None],
    ) -> None:
        """Send it a job, at once or when it has started."""
        self._held, self.begun, self.ended = held, begun, ended
        self._timer = self._loop.call_later(START, self._process_died)
        self._task = msgspec.msgpack.encode(task)
        if self._is_ready:
            self._send()

    def _send(self) -> None:
        task, self._task = self._task, None
        held, self._held = self._held, None
        if task is None or held is None:
            return
        if lease_time() >= held.leased_until:  # the worker was frozen while the process started
            self._cancel_timer()
            self._end(delivery_outcome.HANDED_BACK, completed=False)
            self._idle(self)
            return
        try:
            self._connection.send_bytes(task)
        except OSError:
            self._process_died()

    def _receive(self) -> None:
        try:
            message = self._connection.recv_bytes()
        except (EOFError, OSError):
            self._process_died()
            return
        if message == READY:
            self._is_ready = True
            self._send()
            return
        self._cancel_timer()
        if message == BEGUN:
            if self.begun is not None:
                self.begun()
            return
        result = _results.decode(message)
        self._end(result.outcome, completed=result.completed)
        self._idle(self)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, outcome: DeliveryOutcome, *, completed: bool) -> None:
        ended, self.ended, self.begun = self.ended, None, None
        if ended is not None:
            ended(outcome, completed)

    def _process_died(self) -> None:
        """Clean up, and end the job that it ran."""
        self.kill()
        self._process.join(timeout=1)
        died = ProcessDied(self._process.exitcode)
        self._end(delivery_outcome.on_error(died), completed=False)
        self._idle(self)

    def kill(self) -> None:
        """Kill the process now."""
        if not self.is_gone:
            self.is_gone = True
            self._cancel_timer()
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()
            self._process.kill()
            atexit.unregister(self._exit)

    def _exit(self) -> None:
        """End with a parent whose worker still runs, in a thread; its job is rescued.

        Otherwise multiprocessing would send SIGTERM, which a child ignores, and wait forever.
        """
        self.ended = self.begun = None
        self._process.kill()


class Processes:
    """The child processes of a worker, busy and idle ones."""

    def __init__(self, loop: AbstractEventLoop, hooks: Hooks) -> None:
        """Starts no process."""
        self._loop = loop
        self._hooks = hooks
        self._idle: list[Child] = []
        self._all: set[Child] = set()

    def submit(
        self,
        held: HeldDelivery,
        settings: WorkerSettings,
        begun: Callable[[], None],
        ended: Callable[[DeliveryOutcome, bool], None],
    ) -> Child:
        """Run a job in a child; `begun` is called before the handler, `ended` after it."""
        function = held.handler.function
        task = ChildTask(
            function.__module__,
            function.__qualname__,
            held.row,
            settings.lease,
            settings.name,
            held.timeout,
        )
        if self._idle:
            chosen = self._idle.pop()
        else:
            chosen = Child(self._loop, self._child_idle, self._hooks.in_processes)
        self._all.add(chosen)
        chosen.run(held, task, begun, ended)
        return chosen

    def _child_idle(self, chosen: Child) -> None:
        if chosen.is_gone:
            self._all.discard(chosen)
            if chosen in self._idle:
                self._idle.remove(chosen)
        else:
            self._idle.append(chosen)

    def kill(self, chosen: Child) -> None:
        """Kill a child. The outcome of its job is not reported."""
        chosen.ended = chosen.begun = None
        chosen.kill()
        self._all.discard(chosen)

    def close(self) -> None:
        """Kill all children."""
        for chosen in list(self._all):
            self.kill(chosen)
        self._idle.clear()
