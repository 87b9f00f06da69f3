"""Whether an error says that a row is already there: told by its evidence, whichever driver's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

UNIQUE_VIOLATION: Final = "23505"
"""PostgreSQL's SQLSTATE."""

SQLITE_CODES: Final = frozenset({1555, 2067, 2579})
"""SQLite's extended codes: a primary key, a unique constraint, a row id."""


def is_unique_violation(error: BaseException) -> bool:
    """True where a database refused a row because one like it exists.

    Knows the errors of psycopg, psycopg2, asyncpg, sqlite3 and aiosqlite, and those of SQLAlchemy
    and Django around them.
    """
    return any(
        getattr(one, "sqlstate", None) == UNIQUE_VIOLATION
        or getattr(one, "pgcode", None) == UNIQUE_VIOLATION
        or getattr(one, "sqlite_errorcode", None) in SQLITE_CODES
        for one in _layers(error)
    )


def _layers(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was made of: SQLAlchemy's `orig`, and what it was raised from.

    Not what it merely came after: a handler that mends a violation may fail of something else.
    """
    seen: set[int] = set()
    one: object = error
    while isinstance(one, BaseException) and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = getattr(one, "orig", None) or one.__cause__
