"""What worker processes count, seen by who watches them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.tally import SAMPLES, new_tally, opened

ROOT = Path(__file__).parents[2]


def test_nothing_is_counted_at_first(tmp_path: Path) -> None:
    new_tally(tmp_path / "tally", 2)

    with opened(tmp_path / "tally") as tally:
        assert tally.counts == [0, 0]
        assert tally.samples(0) == []


def test_each_place_counts_by_itself(tmp_path: Path) -> None:
    new_tally(tmp_path / "tally", 2)

    with opened(tmp_path / "tally") as tally:
        first, second = tally.at(0), tally.at(1)
        first.count(10)
        second.count(20)
        second.count(30)

        assert tally.counts == [1, 2]
        assert tally.samples(0) == [10]
        assert tally.samples(1) == [20, 30]


def test_what_is_counted_beyond_the_room_for_samples_touches_nobody(tmp_path: Path) -> None:
    new_tally(tmp_path / "tally", 2)

    with opened(tmp_path / "tally") as tally:
        first = tally.at(0)
        for _ in range(SAMPLES + 5):
            first.count(7)

        assert tally.counts == [SAMPLES + 5, 0]
        assert tally.samples(0) == [7] * SAMPLES


def test_another_process_counts_in_the_same_memory(tmp_path: Path) -> None:
    path = tmp_path / "tally"
    new_tally(path, 1)
    program = (
        "import sys; from pathlib import Path; from bench.tally import opened\n"
        "with opened(Path(sys.argv[1])) as tally: tally.at(0).count(42)"
    )

    with opened(path) as tally:
        subprocess.run((sys.executable, "-c", program, str(path)), cwd=ROOT, check=True)

        assert tally.counts == [1]
        assert tally.samples(0) == [42]
