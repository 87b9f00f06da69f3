"""A table that another transaction has locked."""

from collections.abc import Generator
from contextlib import contextmanager

from tests.fixtures.place import Place


@contextmanager
def locked(place: Place, table: str) -> Generator[None]:
    """Nothing can be written to this table; on SQLite, to no table."""
    with place.connection() as connection:
        connection.execute(place.begin)
        if place.on_postgres:
            connection.execute(f"lock table {place.schema}.{table}")
        yield
