"""`python -m bench`, as `make bench` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """In a folder of its own, where it leaves what it writes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    words = (sys.executable, "-m", "bench")
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        *(("SCALE", value, "SCALE must be above 0") for value in ("nan", "inf", "-inf", "0", "-1")),
        ("SCALE", "1e300", "SCALE must be above 0 and at most 1000"),
        ("SCALE", "much", "SCALE must be a number"),
        ("ROUNDS", "0", "ROUNDS at least 1"),
        ("ROUNDS", "1.5", "ROUNDS a whole one"),
        ("ONLY", "no such thing", "ONLY=no such thing chooses no measurement"),
        ("ONLY", ",", "ONLY=, chooses no measurement"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_with_a_sentence(
    tmp_path: Path, setting: str, value: str, sentence: str
) -> None:
    done = bench(tmp_path, **{setting: value})

    assert done.returncode == 1
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_names_are_printed(tmp_path: Path) -> None:
    done = bench(tmp_path, ONLY="list")

    assert done.returncode == 0
    assert "postgres.take.finished" in done.stdout
