"""Threads of handlers that are interrupted."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest

from onefold.events import Event, JobEnded
from onefold.worker.threads import Interrupted, Threads
from tests.fixtures.patience import HANG
from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.worker.stage import QUICK, perform, spin, until, working

PATIENCE = HANG


class SlowModule:
    """A module whose import waits until the test opens its gate."""

    name = "onefold_test_slow_module"

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def load(self) -> None:
        import_module(self.name)


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[SlowModule]:
    module = SlowModule()
    (tmp_path / f"{module.name}.py").write_text(
        f"from {__name__} import gates\ngates[0].begun.set()\ngates[0].may_end.wait({PATIENCE})\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    gates[:] = [module]
    yield module
    module.may_end.set()
    sys.modules.pop(module.name, None)


gates: list[SlowModule] = []


@contextmanager
def _importing(slow: SlowModule) -> Generator[None]:
    """Another thread imports the module meanwhile."""
    importing = _started(slow.load)
    assert slow.begun.wait(PATIENCE)
    yield
    slow.may_end.set()
    importing.join(PATIENCE)


def _started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def _wait(condition: Callable[[], object]) -> None:
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "what the test waited for did not happen"
        pause.wait(0.001)


def _is_in(thread: int | None, *functions: str) -> bool:
    """Whether a function of this name is the innermost one of a thread."""
    frame = None if thread is None else sys._current_frames().get(thread)
    return frame is not None and frame.f_code.co_name in functions


class _Handler:
    """Does its work, and then runs until it is interrupted."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self.thread: int | None = None
        self.has_worked = False
        self.is_interrupted = False

    def __call__(self) -> None:
        self.thread = threading.get_ident()
        try:
            self._work()
            self.has_worked = True
            spin()
        except Interrupted:
            self.is_interrupted = True
            raise


def test_an_interrupt_does_not_hit_a_thread_that_the_handler_starts() -> None:
    threads = Threads("interrupted", 1)

    for _ in range(repetitions(10, soak=50)):
        begun = threading.Event()

        def start_threads(begun: threading.Event = begun) -> None:
            while True:
                begun.set()
                threading.Thread(target=int, daemon=True).start()

        task = threads.submit(start_threads)
        assert begun.wait(30)
        task.interrupt()

    pause = threading.Event()
    for _ in range(1000):
        if all(thread.ident is not None for thread in threading.enumerate()):
            return
        pause.wait(0.01)
    pytest.fail("a thread was started and has never begun")


def test_an_interrupt_waits_for_the_end_of_an_import(slow: SlowModule) -> None:
    handler = _Handler(slow.load)
    task = Threads("importing", 1).submit(handler)
    assert slow.begun.wait(PATIENCE)
    task.interrupt()
    slow.may_end.set()
    _wait(lambda: handler.is_interrupted)
    assert handler.has_worked


def test_an_interrupted_handler_does_not_leave_the_lock_of_a_module_locked(
    slow: SlowModule,
) -> None:
    handler = _Handler(slow.load)
    with _importing(slow):
        task = Threads("importing", 1).submit(handler)
        _wait(lambda: _is_in(handler.thread, "acquire"))
        task.interrupt()
        other = _started(slow.load)
        _wait(lambda: _is_in(other.ident, "acquire"))
    other.join(PATIENCE)
    assert not other.is_alive()
    _wait(lambda: handler.is_interrupted)


def test_an_interrupted_handler_does_not_leave_the_lock_of_a_log_handler_locked() -> None:
    log, sink = logging.getLogger("onefold_test.interrupted"), logging.StreamHandler(StringIO())
    log.addHandler(sink)
    handler = _Handler(lambda: log.error("from the handler"))
    try:
        assert sink.lock is not None
        with sink.lock:
            task = Threads("logging", 1).submit(handler)
            _wait(lambda: _is_in(handler.thread, "acquire", "handle"))
            task.interrupt()
        other = _started(lambda: log.error("from another thread"))
        other.join(PATIENCE)
        assert not other.is_alive()
        _wait(lambda: handler.is_interrupted)
    finally:
        log.removeHandler(sink)


def test_an_interrupted_handler_does_not_leave_a_condition_locked() -> None:
    condition = threading.Condition()

    def enter() -> None:
        with condition:
            pass

    handler = _Handler(enter)
    with condition:
        task = Threads("entering", 1).submit(handler)
        _wait(lambda: _is_in(handler.thread, "__enter__"))
        task.interrupt()
    other = _started(enter)
    other.join(PATIENCE)
    assert not other.is_alive()
    _wait(lambda: handler.is_interrupted)


def test_a_handler_that_waits_again_and_again_is_interrupted() -> None:
    never = threading.Event()

    def wait() -> None:
        while not never.wait(0.01):
            pass

    handler = _Handler(wait)
    task = Threads("waiting", 1).submit(handler)
    _wait(lambda: _is_in(handler.thread, "wait"))
    task.interrupt()
    _wait(lambda: handler.is_interrupted)


def test_an_interrupt_after_the_end_hits_nothing_and_the_thread_goes_on() -> None:
    threads = Threads("reused", 1)
    ended, again, may_end = threading.Event(), threading.Event(), threading.Event()
    seen: list[int] = []

    def first() -> None:
        seen.append(threading.get_ident())

    def second() -> None:
        seen.append(threading.get_ident())
        again.set()
        assert may_end.wait(PATIENCE)
        ended.set()

    task = threads.submit(first)
    threads.submit(second)
    assert again.wait(PATIENCE)
    task.interrupt()
    threads.submit(lambda: None)  # waits for the only thread
    assert [thread.name for thread in threading.enumerate()].count("reused") == 1
    may_end.set()
    assert ended.wait(PATIENCE)
    assert len(set(seen)) == 1
    threads.close()


def test_what_was_given_up_before_it_began_is_not_begun() -> None:
    threads, ran = Threads("test", 1), list[str]()
    busy, may_end, over = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        busy.set()
        may_end.wait(PATIENCE)

    threads.submit(first)
    assert busy.wait(PATIENCE)
    threads.submit(lambda: ran.append("given up")).interrupt()
    threads.submit(over.set)
    may_end.set()
    assert over.wait(PATIENCE)
    assert ran == []
    threads.close()


@pytest.mark.parametrize("cause", ["timeout", "lost"])
def test_a_worker_interrupts_a_handler_after_its_imports(
    place: Place, slow: SlowModule, cause: str
) -> None:
    handler = _Handler(slow.load)
    events: list[Event] = []
    with place.open() as onefold:
        onefold.subscribe(events.append)

        @onefold.job(max_attempts=1, timeout=timedelta(seconds=1) if cause == "timeout" else None)
        def load() -> None:
            handler()

        async def play() -> None:
            enqueued = await load.aenqueue()
            async with working(onefold, lease=QUICK):
                await until(lambda: _is_in(handler.thread, "acquire"))
                if cause == "lost":
                    await onefold.acancel(enqueued.id)
                await until(lambda: any(isinstance(event, JobEnded) for event in events))
                other = _started(slow.load)
                await until(lambda: _is_in(other.ident, "acquire"))
                slow.may_end.set()
                await until(lambda: not other.is_alive())
                await until(lambda: handler.is_interrupted)

        with _importing(slow):
            perform(play, onefold)
