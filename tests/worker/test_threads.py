"""Threads of handlers that are interrupted."""

from __future__ import annotations

import threading

import pytest

from onefold.worker.threads import Threads


def test_an_interrupt_does_not_hit_a_thread_that_the_handler_starts() -> None:
    threads = Threads("interrupted", 1)

    for _ in range(50):
        begun = threading.Event()

        def start_threads(begun: threading.Event = begun) -> None:
            while True:
                begun.set()
                threading.Thread(target=int, daemon=True).start()

        task = threads.submit(start_threads)
        assert begun.wait(30)
        task.interrupt()
        threads.abandon()

    pause = threading.Event()
    for _ in range(1000):
        if all(thread.ident is not None for thread in threading.enumerate()):
            return
        pause.wait(0.01)
    pytest.fail("a thread was started and has never begun")
