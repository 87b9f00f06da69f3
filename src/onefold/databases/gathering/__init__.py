"""Group commit: single calls of many threads or tasks become one statement and one commit.

    caller ─┐                                 ┌─ answer
    caller ─┼─ pending ─ flight ─ one commit ─┼─ answer
    caller ─┘                                 └─ its own error

1. Nobody waits for company: where none is on its way, a flight leaves at once, with whoever is
   there. Those who come meanwhile take the next. It waits for the first to land, unless they are a
   crowd or the first is late.
2. A flight that fails goes item by item, so that one bad item never fails its neighbours.
3. A flight does not wait long for a key that somebody holds. The item whose key it is gets a lane
   of its own, where it waits patiently with others that want the same key, and stalls nobody else.

Here is what threads and tasks have in common; how they wait is in `threads` and `tasks`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar
from weakref import ref

from onefold.databases.batching import Item
from onefold.errors import (
    Closed,
    DatabaseBusy,
    DatabaseUnavailable,
    OnefoldError,
    SchemaOutdated,
    SchemaTooNew,
    ShardsDiffer,
)

if TYPE_CHECKING:
    from onefold.operations.statement import Operation, Sql

Shared = Item

T = TypeVar("T")

LARGEST_FLIGHT: Final = 1_000
PATIENT_FLIGHTS: Final = 5
"""Of all lanes together: held keys must not use up the connections that everybody needs."""
FLIGHTS: Final = 2
"""At once, of one lane: while one waits for the disk, the next is on its way."""
CROWD: Final = 8
"""So many tasks do not wait for another flight to land. Fewer do: while their event loop is busy, a
flight costs far more than a seat."""
LATE: Final = 0.1
"""Seconds after which a flight is waited for no longer: its connection may hang."""


class HeldUp(Exception):
    """Somebody holds what an impatient transaction needs."""


def just(shared: Shared[Any, T]) -> Callable[[Sql], Operation[list[T]]]:
    """The operation of a flight that somebody is alone on."""
    return lambda sql: shared.many(sql, [shared.value])


def together(waiting: Sequence[Waiting]) -> Callable[[Sql], Operation[list[Any]]]:
    """The operation of all items of a flight."""
    items = [each.shared.value for each in waiting]
    return lambda sql: waiting[0].shared.many(sql, items)


class Waiting(ABC):
    """A caller, with the item it asks for; how it is told is its own business."""

    def __init__(self, shared: Shared[Any, Any], deadline: float) -> None:
        """Not answered yet."""
        self.shared = shared
        self.deadline = deadline
        self.answered: bool = False

    # Told first and marked afterwards: a signal in between has it told twice, and never not at all.

    def succeed(self, answer: object) -> None:
        """Give the answer."""
        self._tell(answer, None)
        self.answered = True

    def fail(self, error: BaseException) -> None:
        """Give the error."""
        self._tell(None, error)
        self.answered = True

    def hold_up(self) -> None:
        """Say that its key is held: the caller waits for it in a lane of its own."""
        self.fail(HeldUp())

    @abstractmethod
    def _tell(self, answer: object, error: BaseException | None) -> None:
        """Let the caller know."""


Flight: TypeAlias = Generator[Sequence[Waiting], list[Any], None]


def flight(waiting: Sequence[Waiting]) -> Flight:
    """Run all together, or else one by one; each is told what became of its own item.

    Yields those that are to be run in one transaction, and wants their answers.
    """
    try:
        answers = list(zip(waiting, (yield waiting), strict=True))
    except Exception as error:  # noqa: BLE001 - somebody's own is found out one by one
        if len(waiting) == 1 or _befalls_all(error):
            fail_all(waiting, error)
        else:
            yield from _one_by_one(waiting)
    else:
        for each, answer in answers:
            each.succeed(answer)


def _one_by_one(waiting: Sequence[Waiting]) -> Flight:
    held: set[Hashable] = set()
    for place, each in enumerate(waiting):
        if each.shared.key in held:
            each.hold_up()
            continue
        try:
            (answer,) = yield [each]
        except HeldUp:
            held.add(each.shared.key)
            each.hold_up()
        except Exception as error:  # noqa: BLE001 - this item's own, or the end of all
            if _befalls_all(error):
                fail_all(waiting[place:], error)
                return
            each.fail(error)
        else:
            each.succeed(answer)


def _befalls_all(error: Exception) -> bool:
    """True for what would befall every item, however they are put together.

    Each would wait anew for a server that is away, or for a connection that nobody gives back.
    """
    if isinstance(error, DatabaseBusy):
        return bool(error.waited)
    return isinstance(
        error, DatabaseUnavailable | SchemaOutdated | SchemaTooNew | ShardsDiffer | Closed
    )


def fail_all(waiting: Sequence[Waiting], error: Exception) -> None:
    """Tell them all of what has befallen them."""
    for each in waiting:
        # One of its own for everybody: it gets the traceback of whoever raises it.
        each.fail(copy(error) if isinstance(error, OnefoldError) else error)


class Token:
    """Stands for a flight as long as whoever leads it is there."""


class Flights:
    """The flights that are on their way.

    Not a WeakSet: what a signal handler raises inside a callback of weakref's is swallowed.
    """

    def __init__(self) -> None:
        """None yet."""
        self._left: list[tuple[ref[Token], float]] = []

    def add(self, token: Token) -> None:
        """One leaves, or leaves again; those whose leader is gone are forgotten."""
        self.discard(token)
        self._left = [known for known in self._left if known[0]() is not None]
        self._left.append((ref(token), time.monotonic()))

    def discard(self, token: Token) -> None:
        """One is over. May be said twice."""
        self._left = [known for known in self._left if known[0]() is not token]

    def __len__(self) -> int:
        """How many have somebody who leads them."""
        return len(self.beside(None))

    def beside(self, landed: Token | None) -> list[float]:
        """When those have left that are on their way, without one that has just landed."""
        # No token is held here: what holds the frame of an interrupted thread would hold it, too.
        return [left for known, left in self._left if known() not in {None, landed}]


W = TypeVar("W", bound=Waiting)


class Lane(Generic[W]):
    """Those who wait for a flight, and the flights that are on their way."""

    def __init__(self, *, patient: bool, crowd: int = 1) -> None:
        """A patient lane has one key, and one flight that may wait long for it."""
        self.patient = patient
        self._crowd = crowd
        self.pending: list[W] = []
        self.flights: Flights = Flights()
        self.boarding = False
        """True where a flight has been called for and not left yet."""
        self.watched = False
        """True where somebody looks after those who wait when the flight is late."""

    @property
    def has_place(self) -> bool:
        """Whether a flight may leave now."""
        return self._may_leave(self.flights.beside(None))

    def has_place_again(self, landed: Token) -> bool:
        """Whether a flight that has just landed, and is still counted, may leave again."""
        return self._may_leave(self.flights.beside(landed))

    def _may_leave(self, beside: list[float]) -> bool:
        if not beside or self.patient:
            return not beside
        is_crowd = len(self.pending) >= self._crowd
        return len(beside) < FLIGHTS and (is_crowd or time.monotonic() - max(beside) >= LATE)

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits here or flies."""
        return not self.flights and not self.pending

    def board(self) -> list[W]:
        """The next flight."""
        boarding = self.pending[:LARGEST_FLIGHT]
        del self.pending[: len(boarding)]
        return boarding


class Lanes(Generic[W]):
    """The lanes of a process or an event loop."""

    def __init__(self, *, crowd: int = 1) -> None:
        """Empty. So many in a lane do not wait for its flight to land."""
        self._crowd = crowd
        self._lanes: dict[tuple[Hashable, Hashable], Lane[W]] = {}

    def of(self, shared: Shared[Any, Any], *, held: bool) -> Lane[W]:
        """The lane of an item: its key's own, where that is held, or the common one."""
        own = self._lanes.get((shared.group, shared.key))
        if own is not None:
            return own
        key = shared.key if held else None
        return self._lanes.setdefault((shared.group, key), Lane(patient=held, crowd=self._crowd))

    def leave(self, shared: Shared[Any, Any], lane: Lane[W]) -> None:
        """Forget a lane that nobody is in. May be said twice: another in its place stays."""
        key = (shared.group, shared.key if lane.patient else None)
        if lane.is_empty and self._lanes.get(key) is lane:
            del self._lanes[key]
