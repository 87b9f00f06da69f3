"""The ambiguous timeout, for real: whatever the network and the server do, one job per publish.

A client publishes through a wire that is cut before the request, in the middle of it, after the
commit and in the middle of the answer, while the server is killed and started again.
"""

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onefold import Enqueued, NewJob
from onefold.client import AsyncClient, Client
from tests.client.scripted import FATES, Cutting
from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.fixtures.serving import Serving, serving

PUBLISHES = repetitions(100, soak=3000)
KILLS = repetitions(1, soak=20)
AT_ONCE = 6
MANY = 3

STUBBORN: dict[str, Any] = {
    "tries": 1000,
    "timeout": timedelta(seconds=20),
    "deadline": timedelta(seconds=120),
    "first_pause": timedelta(milliseconds=2),
    "longest_pause": timedelta(milliseconds=100),
}


def at(place: Place, folder: Path) -> AbstractContextManager[Serving]:
    """A server on a database whose tables are there."""
    flags = ("--schema", place.schema, "--no-migrate", "--no-access-log", "--no-push")
    return serving(place.url, *flags, folder=folder)


Answers = dict[int, list[Enqueued[Any]]]
Told = Callable[[], None]


def wanted(number: int) -> dict[str, Any]:
    """What one publish asks for: some with a unique key, some with a publish key of their own."""
    options: dict[str, Any] = {"queue": "email"}
    if number % 3 == 1:
        options["unique_key"] = f"unique:{number}"
    if number % 3 == 2:
        options["idempotency_key"] = f"order:{number}"
    return options


def batch(number: int) -> list[NewJob]:
    return [NewJob("mail", {"n": number, "part": part}, queue="email") for part in range(MANY)]


def is_batch(number: int) -> bool:
    return number % 10 == 0


def publish_sync(url: str, told: Told) -> Answers:
    """Threads that share a client."""
    with Client(url, **STUBBORN) as client, ThreadPoolExecutor(AT_ONCE) as threads:

        def one(number: int) -> list[Enqueued[Any]]:
            if is_batch(number):
                answers = list(client.enqueue_many(batch(number)))
            else:
                payload = {"n": number, "part": 0}
                answers = [client.enqueue("mail", payload, **wanted(number))]
            told()
            return answers

        return dict(enumerate(threads.map(one, range(PUBLISHES))))


def publish_async(url: str, told: Told) -> Answers:
    """Tasks that share a client."""

    async def all_of_them() -> Answers:
        limit = asyncio.Semaphore(AT_ONCE)
        async with AsyncClient(url, **STUBBORN) as client:

            async def one(number: int) -> list[Enqueued[Any]]:
                async with limit:
                    if is_batch(number):
                        answers = list(await client.enqueue_many(batch(number)))
                    else:
                        payload = {"n": number, "part": 0}
                        answers = [await client.enqueue("mail", payload, **wanted(number))]
                told()
                return answers

            return dict(enumerate(await asyncio.gather(*map(one, range(PUBLISHES)))))

    return asyncio.run(all_of_them())


class Killer:
    """Kills the server at moments that are spread over the publishes, and starts it again."""

    def __init__(self, server: Serving, dice: random.Random) -> None:
        self._server = server
        self._moments = set(dice.sample(range(1, PUBLISHES - 10), KILLS))
        self._done = 0
        self.kills = 0
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._threads: list[threading.Thread] = []

    def told(self) -> None:
        """A publish has been answered."""
        with self._lock:
            self._done += 1
            if self._done in self._moments:
                thread = threading.Thread(target=self._kill)
                self._threads.append(thread)
                thread.start()

    def _kill(self) -> None:
        with self._turn:
            self._server.kill()
            self._server.start()
            self.kills += 1

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def stored(place: Place) -> dict[str, tuple[int, int]]:
    """What the database has: the number and part of each job, by its id."""
    jobs = {
        str(job_id): json.loads(payload)
        for job_id, payload in place.rows("select id, payload from {job}")
    }
    return {job_id: (payload["n"], payload["part"]) for job_id, payload in jobs.items()}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "publish", [publish_sync, pytest.param(publish_async, marks=pytest.mark.prove)]
)
def test_a_publish_makes_one_job_whatever_is_cut_and_whoever_is_killed(
    place: Place, tmp_path: Path, publish: Callable[[str, Told], Answers]
) -> None:
    seed = random.randrange(2**32)
    with at(place, tmp_path) as server, Cutting(server.port, seed=seed) as wire:
        with Client(server.url) as client:
            client.queues.save("email")
        killer = Killer(server, random.Random(seed))
        answers = publish(wire.url, killer.told)
        killer.join()

    jobs = stored(place)
    parts = Counter(jobs.values())
    ids = {number: [answer.id for answer in told] for number, told in answers.items()}
    assert parts == {
        (number, part): 1
        for number in range(PUBLISHES)
        for part in range(MANY if is_batch(number) else 1)
    }, f"seed {seed}"
    for number, told in ids.items():
        assert [jobs[job_id] for job_id in told] == [(number, part) for part in range(len(told))]
    # What we made a key for can only have been made by us.
    assert all(
        answer.inserted
        for number, told in answers.items()
        for answer in told
        if is_batch(number) or number % 3 != 2
    ), f"seed {seed}"
    assert killer.kills == KILLS
    assert all(wire.fates[fate] > 0 for fate in FATES), wire.fates


@pytest.mark.prove
@pytest.mark.timeout(900)
def test_a_post_that_is_no_publish_is_answered_as_the_first_time(
    place: Place, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    number = repetitions(30, soak=300)
    with at(place, tmp_path) as server, Cutting(server.port, seed=seed) as wire:
        with Client(server.url) as client:
            client.queues.save("email")
            new_jobs = [NewJob("mail", {"n": n}, queue="email") for n in range(number)]
            ids = [enqueued.id for enqueued in client.enqueue_many(new_jobs)]
        with Client(wire.url, **STUBBORN) as client:
            cancelled = [client.cancel(job_id) for job_id in ids]
            again = [client.cancel(job_id) for job_id in ids[:5]]

    assert cancelled == [True] * number, f"seed {seed}"
    assert again == [False] * 5
    assert wire.fates["after commit"] > 0
