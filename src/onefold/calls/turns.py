"""Whose turn it is: the shard that a take asks first."""

from __future__ import annotations

import os
from itertools import count
from random import randrange
from typing import TYPE_CHECKING, Final

from onefold.model.ids import HASHES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

REMEMBERED: Final = 1_000


class Turns:
    """Round and round, for each set of queues by itself.

    Takes of other queues in between would else use up the turns of some shards, always the same.
    Each begins anywhere, in a forked child too: who starts together must not crowd on one shard.
    """

    def __init__(self) -> None:
        """Nobody's turn yet."""
        self._process = os.getpid()
        self._turns: dict[tuple[str, ...], Iterator[int]] = {}

    def next(self, queues: Iterable[str]) -> int:
        """The next turn of these queues; its remainder is the shard."""
        names = tuple(queues)
        forked = self._process != os.getpid()
        if forked or (names not in self._turns and len(self._turns) >= REMEMBERED):
            self._process, self._turns = os.getpid(), {}
        turn = self._turns.get(names)
        if turn is None:
            turn = self._turns.setdefault(names, count(randrange(HASHES)))
        return next(turn)
