"""Every contestant is played to its end; and workers of ours are watched from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from bench import postgres
from bench.duplicate_plan import DUPLICATES
from bench.http_plan import HTTP
from bench.play import play
from bench.usage import PROC
from bench.values import Contestant, Measurement, Options, Order
from tests.fixtures.postgres import FOLDER

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from bench.values import Way

JOBS = 20
MANY = 4_000
"""Enough for some to be left when the watch is started, however busy the machine is."""
WORKER: Options = {"worker": "ours_worker", "concurrency": 10}
EACH = [
    pytest.param(each, contestant, id=f"{each.name}: {contestant.name}")
    for each in (*DUPLICATES, *(each for each in HTTP if each.database == "sqlite"))
    for contestant in each.contestants
]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'bench.db'}"


@pytest.fixture(scope="session", params=["tcp", pytest.param("unix", marks=pytest.mark.prove)])
def server_url(request: pytest.FixtureRequest) -> Generator[str]:
    """A server in the folder of the run, whose keeper stops what a killed run leaves behind."""
    way: Way = request.param
    folder = request.config.stash[FOLDER] / f"bench-{way}-{uuid4().hex[:8]}"
    with postgres.server(folder, way) as url:
        yield url


@pytest.mark.parametrize(("measurement", "contestant"), EACH)
def test_a_contestant_plays_to_its_end(
    measurement: Measurement, contestant: Contestant, url: str, server_url: str
) -> None:
    on_postgres = measurement.database == "postgres"
    options = {**measurement.options, **contestant.options}

    lap = play(Order(contestant.plays, server_url if on_postgres else url, JOBS, options))

    assert lap.jobs == JOBS
    assert lap.cpu_seconds > 0
    assert ((lap.server_seconds or 0) > 0) == (on_postgres and PROC.exists())
    assert (lap.wal_bytes is not None) == (on_postgres and PROC.exists())


def test_a_worker_process_handles_all_jobs_and_its_memory_is_known(url: str) -> None:
    lap = play(Order("workers.drain", url, MANY, WORKER))

    # A quarter more was there at first, and was handled before the watch was started.
    assert 0 < lap.jobs <= MANY
    assert set(lap.marks) == {"MB after a fifth", "MB at the end", "growth"}


@pytest.mark.prove
def test_the_time_from_a_call_to_its_handler_is_sampled(url: str) -> None:
    lap = play(Order("workers.latency", url, 5, WORKER))

    assert lap.jobs == 5
    assert 0 < lap.marks["p50 ms"] <= lap.marks["p99 ms"]
    assert lap.marks["p99 / p50"] >= 1
