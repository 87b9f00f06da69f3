"""Shared by the examples: one `Onefold` object, and the application's own transactions."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from onefold import Onefold

if TYPE_CHECKING:
    from collections.abc import Generator

DATABASE: Final = os.environ.get("ONEFOLD_DATABASE", "sqlite:///examples.db")
ON_SQLITE: Final = DATABASE.startswith("sqlite")

onefold = Onefold(DATABASE)


@contextmanager
def transaction() -> Generator[Any]:
    """Open a connection to the same database; commit at the end of the block, or roll back."""
    if ON_SQLITE:
        with closing(sqlite3.connect(DATABASE.removeprefix("sqlite:///"))) as connection:
            connection.execute("pragma foreign_keys = on")
            with connection:
                yield connection
    else:
        import psycopg

        with psycopg.connect(DATABASE) as connection:
            yield connection


def sql(text: str) -> str:
    """Adapt the parameter style to the driver: `?` for sqlite3, `%s` for psycopg."""
    return text if ON_SQLITE else text.replace("?", "%s")
