"""Errors of databases that may not occur again, of any library; none of them is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.databases.sqlite import execute
from onefold.errors import DatabaseBusy, DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSING_CLASSES: Final = frozenset({"08", "40", "53", "55", "57"})
"""Of SQLSTATE: the connection, a conflict, resources, locks, an operator's intervention."""

PASSING_NAMES: Final = frozenset({"OperationalError", "InterfaceError", "PoolTimeout"})
"""Names of driver errors without an SQLSTATE."""


def is_busy(error: BaseException) -> bool:
    """Another transaction has what this one needs."""
    return any(
        isinstance(cause, DatabaseBusy) or execute.is_busy(cause) for cause in _causes(error)
    )


def is_passing(error: BaseException) -> bool:
    """The same request may succeed a moment later: nothing was wrong with it."""
    return any(_is_passing(cause) for cause in _causes(error))


def trace_of(error: Exception) -> Exception | None:
    """What the log shows below its line: of an error of ours, the message says all."""
    return None if isinstance(error, DatabaseError) else error


def _is_passing(error: BaseException) -> bool:
    if isinstance(error, DatabaseError | OSError | TimeoutError):
        return True
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return state[:2] in PASSING_CLASSES
    return any(kind.__name__ in PASSING_NAMES for kind in type(error).__mro__)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what its library has wrapped into it."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        yield found
        seen.add(id(found))
        inner = getattr(found, "orig", None)
        found = inner if isinstance(inner, BaseException) else found.__cause__
