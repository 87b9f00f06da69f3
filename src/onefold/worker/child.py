"""A child process that runs handlers one after the other, for jobs with `isolation="process"`.

It finds the handler by its name, as a fresh interpreter would, and has its own connections. When
its parent goes, it goes too: nobody could tell what it has done.
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
from onefold.errors import InvalidInput
from onefold.job import DeclaredJob
from onefold.model.job import Job
from onefold.worker import verdict
from onefold.worker.handler import call

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from onefold.calls.hooks import Hooks
    from onefold.worker.verdict import Verdict


class Order(msgspec.Struct, frozen=True):
    """What a child is to run."""

    module: str
    name: str
    job: tuple[Any, ...]
    lease: timedelta
    worker: str
    timeout: timedelta | None = None
    """From when the handler is called: what comes before may take a while in a new process."""


class Answer(msgspec.Struct, frozen=True):
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
_orders = msgspec.msgpack.Decoder(Order)


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
    order: Order, begin: Callable[[], None], prepare: Callable[[Hooks], None] | None = None
) -> Answer:
    """Find the handler and call it."""
    job = Job.from_row(order.job)
    declared = find(order.module, order.name)
    hooks = declared.conductor.hooks
    if prepare is not None and hooks.in_processes is None:
        hooks.in_processes = prepare
        prepare(hooks)
    begin()
    deadline = None if order.timeout is None else datetime.now().astimezone() + order.timeout
    run = Run(declared.conductor, job, lease=order.lease, worker=order.worker, deadline=deadline)
    try:
        args, kwargs = declared.bind(job, run)
    except InvalidInput as error:
        return _answer(verdict.on_bad_payload(error), run)
    except Exception as error:  # noqa: BLE001 - a payload may run code of its types
        return _answer(verdict.on_error(error), run)
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


def _answer(word: Verdict, run: Run) -> Answer:
    return Answer(
        word.event.name, word.result, word.after, word.reason, word.error, word.error_type,
        completed=run.completed,
    )  # fmt: skip
