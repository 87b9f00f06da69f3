"""Processes for handlers that must be killable, or that would keep all others from running.

A child runs one job at a time and is used again. One that crashes, or must be stopped, is killed;
it takes nobody with it, and another is started for the next job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import ProcessDied
from onefold.model.lifecycle import Event
from onefold.worker import child, verdict
from onefold.worker.child import Answer, Order
from onefold.worker.verdict import Verdict

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from onefold.calls.hooks import Hooks

START: Final = 60.0
"""Seconds in which a process must have imported what it is to run."""

_answers = msgspec.msgpack.Decoder(Answer)


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
            target=child.main, args=(theirs, prepare), name="onefold-child", daemon=True
        )
        self._process.start()
        theirs.close()
        self._order: bytes | None = None
        self._is_ready = False
        self._late: TimerHandle | None = None
        self.begun: Callable[[], None] | None = None
        self.answered: Callable[[Verdict, bool], None] | None = None
        """Told how the job went, and whether its own transaction has completed it."""
        self.is_gone: bool = False
        loop.add_reader(ours.fileno(), self._hear)

    def run(
        self,
        order: Order,
        begun: Callable[[], None],
        answered: Callable[[Verdict, bool], None],
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
        if message == child.READY:
            self._is_ready = True
            self._send()
            return
        self._is_in_time()
        if message == child.BEGUN:
            if self.begun is not None:
                self.begun()
            return
        answer = _answers.decode(message)
        word = Verdict(
            Event[answer.event], answer.result, answer.after, answer.reason, answer.error,
            answer.error_type,
        )  # fmt: skip
        self._answer(word, completed=answer.completed)
        self._over(self)

    def _is_in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()

    def _answer(self, word: Verdict, *, completed: bool) -> None:
        answered, self.answered, self.begun = self.answered, None, None
        if answered is not None:
            answered(word, completed)

    def _bury(self) -> None:
        """It is gone: so is what it ran."""
        self.kill()
        self._process.join(timeout=1)
        self._answer(verdict.on_death(ProcessDied(self._process.exitcode)), completed=False)
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
        order: Order,
        begun: Callable[[], None],
        answered: Callable[[Verdict, bool], None],
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
