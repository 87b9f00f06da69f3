"""A commit that the database refuses, on a connection of the handler's own."""

import sqlite3
from datetime import timedelta
from pathlib import Path

import aiosqlite
import pytest

from onefold import Onefold, Run
from tests.fixtures.patience import LOCK

LEASE = timedelta(seconds=60)
# A constraint that is only looked at by the commit, which then fails and leaves all open.
TABLES = (
    "create table parent (id integer primary key);"
    "create table child (parent integer references parent deferrable initially deferred);"
)
ORPHAN = "insert into child values (7)"


def _run(onefold: Onefold) -> Run:
    onefold.enqueue("work")
    (job,) = onefold.deliveries.take(worker="worker", lease=LEASE)
    return Run(onefold.context, job, lease=LEASE, worker="worker")


def test_a_refused_commit_is_rolled_back_and_the_file_is_free(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with Onefold(f"sqlite:///{path}", busy_timeout=LOCK) as onefold:
        run = _run(onefold)
        connection = sqlite3.connect(path, isolation_level=None)
        connection.executescript("pragma foreign_keys = on;" + TABLES)
        with pytest.raises(sqlite3.IntegrityError), run.transaction(connection) as tx:
            tx.execute(ORPHAN)

        assert not connection.in_transaction
        assert not run.completed
        assert onefold.enqueue("other").inserted
        connection.close()


async def test_so_it_is_where_it_is_awaited(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with Onefold(f"sqlite:///{path}", busy_timeout=LOCK) as onefold:
        run = _run(onefold)
        async with aiosqlite.connect(path, isolation_level=None) as connection:
            await connection.executescript("pragma foreign_keys = on;" + TABLES)
            with pytest.raises(sqlite3.IntegrityError):
                async with run.transaction(connection) as tx:
                    await tx.execute(ORPHAN)

            assert not connection.in_transaction
            assert not run.completed
        assert onefold.enqueue("other").inserted
