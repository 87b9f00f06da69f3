"""Real worker processes of ours, watched from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.play import play
from bench.values import Options, Order

if TYPE_CHECKING:
    from pathlib import Path

JOBS = 4_000
"""Enough for some to be left when the watch is started, however busy the machine is."""
OPTIONS: Options = {"worker": "ours_worker", "concurrency": 10}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'bench.db'}"


def test_a_worker_process_handles_all_jobs_and_its_memory_is_known(url: str) -> None:
    lap = play(Order("workers.drain", url, JOBS, OPTIONS))

    # A quarter more was there at first, and was handled before the watch was started.
    assert 0 < lap.jobs <= JOBS
    assert set(lap.marks) == {"MB after a fifth", "MB at the end", "growth"}


@pytest.mark.prove
def test_the_time_from_a_call_to_its_handler_is_sampled(url: str) -> None:
    lap = play(Order("workers.latency", url, 5, OPTIONS))

    assert lap.jobs == 5
    assert 0 < lap.marks["p50 ms"] <= lap.marks["p99 ms"]
    assert lap.marks["p99 / p50"] >= 1


@pytest.mark.prove
def test_a_worker_process_that_ends_is_a_failure(url: str) -> None:
    with pytest.raises(RuntimeError, match=r"A worker process has ended"):
        play(Order("workers.drain", url, JOBS, {**OPTIONS, "concurrency": 0}))
