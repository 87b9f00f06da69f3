"""The database under a state machine, and the machine's own look into its tables.

One migrated database serves all examples of a machine; an example leaves it empty. That is much
faster than a database each, on PostgreSQL above all.
"""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings

from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions

# An example is cheap here, and the interesting states are many steps away. Deliveries and words are
# drawn from what is there, and without repetition: some seeds try more often than the check allows.
LENGTH = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much],
    max_examples=repetitions(35, soak=2000),
    stateful_step_count=repetitions(40, soak=60),
)
SHRINKING = 3600
"""Seconds. A good run is short; one that fails takes minutes to find its simplest example."""

START = datetime(2030, 1, 1, tzinfo=UTC)
TABLES = ("job", "claim", "duplicate", "duplicate_tally", "attempt")


def moment(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def seconds(micros: int | None) -> int | None:
    """A stored time, as the machine counts."""
    if micros is None:
        return None
    whole, rest = divmod(micros - int(START.timestamp()) * 1_000_000, 1_000_000)
    assert rest == 0
    return whole


class Store:
    """What a machine needs: Onefold under a clock of its own, and raw SQL."""

    def __init__(self, place: Place) -> None:
        self.now = 0
        """Seconds since START: the machine moves it."""
        self.onefold = place.open(clock=lambda: moment(self.now))
        self._place = place
        self._connection = place.connect()
        self._names = {table: place.table(table) for table in TABLES}

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Run SQL in which `{table}` stands for a table of ours."""
        cursor = self._connection.execute(text.format(**self._names))
        return cursor.fetchall() if cursor.description else []

    def clear(self) -> None:
        """Empty all tables, and set the clock back."""
        self.now = 0
        for table in TABLES:
            self.rows(f"delete from {{{table}}}")

    @contextmanager
    def transaction(self) -> Generator[Any]:
        """A connection of the caller's own, for `within`."""
        with self._place.connection() as connection:
            connection.execute(self._place.begin)
            yield connection
            # Not by closing alone: PostgreSQL would notice that a moment later, and hold the
            # transaction's locks until then.
            connection.rollback()

    def close(self) -> None:
        self._connection.close()
        self.onefold.close()
