"""Requests for the same key, while the workers that run it are killed: no trigger is lost."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from onefold import Onefold, Run
from tests.fixtures.place import Place
from tests.fixtures.shards import found
from tests.fixtures.soak import repetitions
from tests.kill import audit
from tests.kill.jobs import AT_ONCE
from tests.kill.ledger import Ledger
from tests.kill.workers import LEASE, Shop, Worker, at_length, opened, until
from tests.race.crew import together

ROUNDS = repetitions(1, soak=12)
KEYS = 4
REQUESTS = repetitions(40, soak=100)
DEATHS = 4


def work(place: Place, ledger: Ledger) -> None:
    """The life of a worker that brings things up to date."""
    with place.open() as onefold:
        declare(onefold, ledger)
        onefold.run_worker(lease=LEASE, poll=LEASE / 5, concurrency=4)


def declare(onefold: Onefold, ledger: Ledger) -> None:
    @onefold.job
    def refresh(run: Run, key: str, version: int) -> None:
        ledger.note(key, run.id, run.fence, version)


@pytest.fixture(params=[1, 4], ids=["whole", "spread"])
def any_shop(request: pytest.FixtureRequest, empty: Place, tmp_path: Path) -> Iterator[Shop]:
    """Each database in turn, with one shard and with four."""
    found(empty, request.param)
    with opened(empty, tmp_path) as shop:
        yield shop


class Requests:
    """One caller for each key: of its requests, the last one is the newest."""

    def __init__(self, place: Place, on_duplicate: Literal["rerun", "replace"]) -> None:
        self._place = place
        self._on_duplicate: Literal["rerun", "replace"] = on_duplicate
        self.last: dict[str, int] = {}
        """The newest version that was accepted, by key."""
        self.done = threading.Event()

    def make(self) -> None:
        together(*(lambda key=f"key-{n}": self._make(key) for n in range(KEYS)))
        self.done.set()

    def _make(self, key: str) -> None:
        with self._place.open() as onefold:
            for version in range(1, REQUESTS + 1):
                answer = onefold.enqueue(
                    "refresh", {"key": key, "version": version}, unique_key=key,
                    on_duplicate=self._on_duplicate, max_attempts=100, backoff=AT_ONCE,
                )  # fmt: skip
                # A running holder is not replaced, and the caller is told so.
                if self._on_duplicate == "rerun" or answer.inserted or answer.replaced:
                    self.last[key] = version


@at_length
@pytest.mark.parametrize("on_duplicate", ["rerun", "replace"])
def test_the_newest_request_for_a_key_is_run_whoever_dies(
    any_shop: Shop, on_duplicate: Literal["rerun", "replace"]
) -> None:
    shop, dice = any_shop, random.Random()
    for _ in range(ROUNDS):
        requests = Requests(shop.place, on_duplicate)
        caller = threading.Thread(target=requests.make)
        worker = shop.hire(work, shop.place, shop.ledger)
        caller.start()
        for _ in range(DEATHS):
            worker = _replaced_after(shop, worker, dice.randrange(1, 12), requests.done)
        caller.join()
        until(lambda: not audit.unfinished(shop.place), "for all jobs to end")
        worker.stop()

        check(shop, requests.last)
        shop.clear()


def _replaced_after(shop: Shop, worker: Worker, runs: int, done: threading.Event) -> Worker:
    """Kill a worker when it has run some more, and start another."""
    goal = shop.ledger.count() + runs
    until(lambda: shop.ledger.count() >= goal or done.is_set(), "for more runs")
    worker.kill()
    return shop.hire(work, shop.place, shop.ledger)


def check(shop: Shop, last: dict[str, int]) -> None:
    """The job with the newest payload of each key is completed, and was run with it."""
    with shop.place.open() as onefold:
        stored = list(onefold.find(limit=10_000))
    assert {job.state for job in stored} == {"completed"}
    newest = {
        key: max(job.payload["version"] for job in stored if job.unique_key == key) for key in last
    }
    assert newest == last
    ran = {(line.job_id, line.fence): int(line.value) for line in shop.ledger.lines()}
    assert {job.id: ran[job.id, job.fence] for job in stored} == {
        job.id: job.payload["version"] for job in stored
    }
    # Nobody else has a key meanwhile: the runs that counted are in order.
    fences = {job.id: job.fence for job in stored}
    for key in last:
        lines = shop.ledger.lines(key)
        versions = [int(line.value) for line in lines if line.fence == fences[line.job_id]]
        assert versions == sorted(versions)
