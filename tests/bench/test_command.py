"""`python -m bench`, as `make bench` runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import main

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
        *(("SCALE", value, "SCALE must be above 0") for value in ("nan", "inf", "0", "1e300")),
        ("SCALE", "much", "SCALE must be a number"),
        ("ROUNDS", "0", "ROUNDS at least 1"),
        ("SOCKET", "pigeon", "SOCKET tcp or unix"),
        ("ONLY", "no such thing", "ONLY=no such thing chooses no measurement"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(setting, value)
    before = signal.getsignal(signal.SIGTERM)

    with pytest.raises(SystemExit, match=sentence):
        main()
    signal.signal(signal.SIGTERM, before)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.prove
def test_what_was_measured_before_a_contestant_failed_is_concluded(tmp_path: Path) -> None:
    # Huey is no dependency of ours: it fails here, after the measurement before it has ended.
    only = "sqlite.enqueue.bulk,sqlite.enqueue.single"

    done = bench(tmp_path, ONLY=only, SCALE="0.001", ROUNDS="1")

    sentence = "huey failed in sqlite.enqueue.single; what it said is above."
    (path,) = (tmp_path / "build" / "bench").glob("*.json")
    written = json.loads(path.read_bytes())
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == sentence
    assert "Ratios of medians" in done.stdout
    assert [each["measurement"]["name"] for each in written["measurements"]] == [
        "sqlite.enqueue.bulk"
    ]
    assert written["failure"] == sentence
    assert {(run["measurement"], run["contestant"]) for run in written["runs"]} >= {
        ("sqlite.enqueue.bulk", "onefold"),
        ("sqlite.enqueue.single", "onefold"),
        ("sqlite.enqueue.single", "raw"),
    }


def test_a_run_that_went_well_has_no_failure(tmp_path: Path) -> None:
    done = bench(tmp_path, ONLY="sqlite.enqueue.bulk", SCALE="0.001", ROUNDS="1")

    (path,) = (tmp_path / "build" / "bench").glob("*.json")
    assert done.returncode == 0
    assert json.loads(path.read_bytes())["failure"] is None
