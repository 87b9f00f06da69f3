"""A commit that the database refuses, on a connection of the handler's own."""

import sqlite3
from typing import Any

import aiosqlite
import pytest

from tests.effects.deliveries import Deliveries, execute
from tests.fixtures.colours import Colour, Store

# A constraint that is only looked at by the commit, which then fails and leaves all open.
TABLES = (
    "pragma foreign_keys = on",
    "create table parent (id integer primary key)",
    "create table child (parent integer references parent deferrable initially deferred)",
)
ORPHAN = "insert into child values (7)"


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_a_refused_commit_is_rolled_back_and_the_file_is_free(
    deliveries: Deliveries, store: Store, colour: Colour
) -> None:
    run = deliveries.first()
    connect: Any = aiosqlite.connect if colour == "async" else sqlite3.connect
    connection = connect(store.path, isolation_level=None)
    if colour == "async":
        await connection
    for statement in TABLES:
        await execute(connection, statement)

    with pytest.raises(sqlite3.IntegrityError):
        async with run.transaction(connection) as tx:
            await execute(tx, ORPHAN)

    assert not connection.in_transaction
    assert not run.target.completed
    assert deliveries.onefold.enqueue("other").inserted
    if (closing := connection.close()) is not None:
        await closing
