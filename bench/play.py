"""The process of one run: reads an order as JSON, and writes a lap as JSON.

A process of its own, so that no contestant inherits another's imports, event loop or garbage.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from bench import meter
from bench.stopwatch import Stopwatch
from bench.values import Lap, Order

if TYPE_CHECKING:
    from collections.abc import Callable


def play(order: Order) -> Lap:
    """Let the contestant run, once."""
    module, _, function = order.plays.rpartition(".")
    run: Callable[[Order, Stopwatch], None] = getattr(
        import_module(f"bench.contestants.{module}"), function
    )
    with meter.opened(order.url) as opened:
        watch = Stopwatch(opened)
        run(order, watch)
    if watch.lap is None:
        raise RuntimeError(f"{order.plays} never started its watch.")
    return msgspec.structs.replace(watch.lap, marks=watch.marks)


def main() -> None:
    """Read the order, print the lap."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    lap = play(order)
    sys.stdout.buffer.write(msgspec.json.encode(lap))


if __name__ == "__main__":
    main()
