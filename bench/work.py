"""A worker process: a shift comes in as JSON, and jobs are handled until it is killed.

It says `ready` when all is imported, and begins at the next line that it is told, so that several
begin together.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench import tally
from bench.values import Shift

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Read the shift, and work."""
    shift = msgspec.json.decode(sys.stdin.buffer.readline(), type=Shift)
    module = import_module(f"bench.contestants.{shift.worker}")
    work: Callable[[Shift, tally.Counter], None] = module.work
    with tally.opened(Path(shift.tally)) as shared:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        # Nobody reads on: what it prints is for who looks on.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        work(shift, shared.at(shift.place))


if __name__ == "__main__":
    main()
