"""Group commit across event loops, threads and forked processes."""

import asyncio
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from onefold import Onefold
from tests.faults.callers import run
from tests.fixtures.place import Place
from tests.race.crew import DEADLINE

SIZE = 20


def test_a_loop_that_goes_on_in_another_thread_answers_its_calls(place: Place) -> None:
    with closing(asyncio.new_event_loop()) as loop, ThreadPoolExecutor(1) as other:
        onefold = place.open()

        async def start() -> list[asyncio.Task[Any]]:
            await onefold.aenqueue("first")
            tasks = [asyncio.create_task(onefold.aenqueue("mail", n)) for n in range(SIZE)]
            await asyncio.wait(tasks, timeout=0)  # one turn of the loop: each is queued or running
            return tasks

        async def end(tasks: Sequence[asyncio.Task[Any]]) -> int:
            done, _ = await asyncio.wait(tasks, timeout=DEADLINE)
            await onefold.aclose()
            return len(done)

        tasks = loop.run_until_complete(start())
        assert other.submit(loop.run_until_complete, end(tasks)).result() == SIZE

        assert all(task.result().inserted for task in tasks)


def test_loops_and_threads_that_want_the_same_keys_insert_each_once(place: Place) -> None:
    keys = [str(number) for number in range(SIZE)]

    async def tasks(onefold: Onefold) -> int:
        calls = [onefold.aenqueue("mail", unique_key=key) for key in keys]
        return sum(found.inserted for found in await asyncio.gather(*calls))

    def threads(onefold: Onefold) -> int:
        def inserted(key: str) -> bool:
            return onefold.enqueue("mail", unique_key=key).inserted

        with ThreadPoolExecutor(8) as pool:
            return sum(pool.map(inserted, keys))

    with place.open() as onefold, ThreadPoolExecutor(4) as pool:
        loops = [pool.submit(lambda: asyncio.run(tasks(onefold))) for _ in range(2)]
        crowds = [pool.submit(threads, onefold) for _ in range(2)]
        inserted = sum(each.result(DEADLINE) for each in (*loops, *crowds))

    assert inserted == SIZE


FORK = """
    import os, sys, threading
    from concurrent.futures import ThreadPoolExecutor
    from onefold import Onefold

    onefold = Onefold(sys.argv[1], schema=sys.argv[2])
    onefold.find()
    stop = threading.Event()
    stored = []

    def hammer(rank):
        number = 0
        while not stop.is_set():
            stored.append(onefold.enqueue("mail", unique_key=f"{rank} {number}").inserted)
            number += 1

    def crowd(fork):
        with ThreadPoolExecutor(10) as pool:
            keys = [f"child {fork} {number}" for number in range(10)]
            return all(pool.map(lambda key: onefold.enqueue("mail", unique_key=key).inserted, keys))

    threads = [threading.Thread(target=hammer, args=(rank,)) for rank in range(8)]
    for thread in threads:
        thread.start()
    for fork in range(5):
        child = os.fork()
        if child == 0:
            os._exit(0 if crowd(fork) else 1)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    for thread in threads:
        thread.join()
    assert all(stored)
    onefold.close()
    print(len(stored) + 5 * 10)
"""


def test_a_forked_child_of_a_crowd_has_a_group_or_a_writer_of_its_own(place: Place) -> None:
    with place.open() as onefold:
        onefold.find()

    (stored,) = run(FORK, place.url, place.schema)

    assert place.rows("select count(*) from {job}") == [(int(stored),)]


INTERRUPT = """
    import asyncio, os, signal, sys
    from onefold import Onefold

    onefold = Onefold(sys.argv[1], schema=sys.argv[2])
    onefold.find()

    async def crowd(turn):
        async def work(rank):
            for number in range(1_000_000):
                await onefold.aenqueue("mail", unique_key=f"{turn} {rank} {number}")
                if (rank, number) == (turn, 3):
                    os.kill(os.getpid(), signal.SIGINT)

        await asyncio.gather(*(work(rank) for rank in range(20)))

    async def again():
        return await asyncio.gather(*(onefold.aenqueue("mail") for _ in range(20)))

    for turn in range(5):
        try:
            asyncio.run(crowd(turn))
        except KeyboardInterrupt:
            print("interrupted")
        assert onefold.enqueue("mail").inserted
        assert all(found.inserted for found in asyncio.run(again()))
    onefold.close()
"""


def test_an_interrupted_loop_leaves_the_next_loop_and_the_threads_alone(place: Place) -> None:
    with place.open() as onefold:
        onefold.find()

    assert run(INTERRUPT, place.url, place.schema) == ["interrupted"] * 5


# Those patches start no thread any more until all threads have ended.
if not (3, 12) <= sys.version_info < (3, 12, 2):

    def test_threads_are_still_answered_when_the_main_thread_has_ended(place: Place) -> None:
        with place.open() as onefold:
            onefold.find()

        run(
            """
            import sys, threading
            from onefold import Onefold

            onefold = Onefold(sys.argv[1], schema=sys.argv[2])

            def work():
                threading.main_thread().join()
                for _ in range(5):
                    onefold.enqueue("late")

            for _ in range(8):
                threading.Thread(target=work).start()
            """,
            place.url,
            place.schema,
        )

        # The server may still store a call that an earlier test has interrupted.
        assert place.rows("select count(*) from {job} where kind = 'late'") == [(40,)]


def test_a_call_whose_thread_cannot_start_is_not_made_later(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "onefold-writer":
            raise RuntimeError("can't start new thread")
        start(thread)

    async def calls(onefold: Onefold) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await onefold.aenqueue("lost")
        await onefold.aenqueue("later")

    with Onefold(sqlite_url) as onefold:
        onefold.find()
        asyncio.run(calls(onefold))

        assert [job.kind for job in onefold.find()] == ["later"]
