"""A worker process: reads a shift as JSON, and handles jobs until it is killed.

It prints `ready` when all is imported, and starts at the next line of its standard input, so that
several processes start together.
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
        # The parent does not read any further: later output goes to stderr.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        work(shift, shared.at(shift.place))


if __name__ == "__main__":
    main()
