"""Group commit: single calls of many threads or tasks share one statement and one commit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import msgspec

from onefold.operations.statement import Operation, Sql

V = TypeVar("V")
T = TypeVar("T")


class Item(msgspec.Struct, Generic[V, T], frozen=True):
    """One value for a plural operation, which may run together with the values of other callers."""

    many: Callable[[Sql, Sequence[V]], Operation[list[T]]]
    value: V
    group: Hashable
    """Items of one group run together, by the `many` of any of them."""
    key: Hashable
    """What the item may have to wait for."""

    def alone(self, sql: Sql) -> Operation[T]:
        """The operation of this item alone."""
        (answer,) = yield from self.many(sql, [self.value])
        return answer
