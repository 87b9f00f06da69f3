"""How many more jobs each queue may give, where none may have all places. Pure.

What a queue has here is a part of what stays free beside it. Nobody takes away what a queue has, so
one that hangs must leave something, and the next one that hangs must leave something of that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

KEPT_FREE: Final = 8
"""A queue that is alone leaves this part of all places to others that may come: an eighth."""


class Wish(NamedTuple):
    """A queue that may have something to give."""

    queue: str
    most: int | None
    """That it may have here at once; None for any number."""
    used: int
    """That it has now."""

    def within(self, part: int) -> int:
        """So many, or as many as it may have beside those that it has."""
        return part if self.most is None else min(part, self.most - self.used)


def allot(wishes: list[Wish], room: int, *, places: int, spread: int | None) -> dict[str, int]:
    """How many each may give, of `room` that is free of all places. Without a spread, all of it."""
    if spread is None:
        given = [(wish, wish.within(room)) for wish in wishes]
    elif len(wishes) == 1 and wishes[0].used + room >= places:
        (alone,) = wishes
        given = [(alone, alone.within(_at_least_one(alone, room, room - places // KEPT_FREE)))]
    else:
        given = _fairly(wishes, room, spread)
    return {wish.queue: number for wish, number in given if number > 0}


def _fairly(wishes: list[Wish], room: int, spread: int) -> list[tuple[Wish, int]]:
    """So many that all of them can have as much, and each has its part of what stays free then."""
    hungry = [wish for wish in wishes if wish.within(_part_of(wish, room, 1, spread)) > 0]
    given: list[tuple[Wish, int]] = []
    for ahead, wish in enumerate(hungry):
        number = wish.within(_part_of(wish, room, len(hungry) - ahead, spread))
        given.append((wish, number))
        room -= max(number, 0)
    return given


def _part_of(wish: Wish, room: int, queues: int, spread: int) -> int:
    return _at_least_one(wish, room, (room - spread * wish.used) // (spread + queues))


def _at_least_one(wish: Wish, room: int, part: int) -> int:
    """Who has none may have one in any case, and be it the last place."""
    return max(part, 1 if room > 0 and not wish.used else 0)
