"""Who runs when.

1. Contestants alternate: A B C, A B C, … A storm on the machine hits all of them, not one.
2. A run with more than TOLERATED steal is set aside, and its contestant runs again in an extra
   round, at most EXTRA times. The rule looks at steal only, never at the figure.
3. Every run is kept for the record, those set aside too.
"""

from __future__ import annotations

from os import getloadavg
from typing import TYPE_CHECKING, Final

from bench.values import Contestant, Lap, Measurement, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOLERATED: Final = 0.10
EXTRA: Final = 2


def measure(
    measurement: Measurement, rounds: int, play: Callable[[Contestant], Lap]
) -> Iterator[Run]:
    """Let the contestants run in turn, and yield each run as it ends."""
    quiet = dict.fromkeys((each.name for each in measurement.contestants), 0)
    for turn in range(rounds + EXTRA):
        for contestant in measurement.contestants:
            if turn >= rounds and quiet[contestant.name] >= rounds:
                continue
            load = getloadavg()[0]
            lap = play(contestant)
            set_aside = lap.steal > TOLERATED
            quiet[contestant.name] += not set_aside
            yield Run(measurement.name, contestant.name, turn, lap, load, set_aside)
