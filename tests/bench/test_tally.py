"""What worker processes count, seen by who watches them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.tally import new_tally, opened

ROOT = Path(__file__).parents[2]


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
