"""A process that is killed between our enqueue and its own commit: nothing of either is stored."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.fixtures.colours import Coloured, Store
from tests.fixtures.connection import Kind
from tests.fixtures.connections import Effects, kinds

ROOT = Path(__file__).parents[2]

PROGRAM = """
import asyncio, sys
from onefold import Onefold
from tests.fixtures.colours import Coloured, Store
from tests.fixtures.connections import kinds

name, dialect, url, schema, insert, moment = sys.argv[1:]

def wait_for_death():
    print("here", flush=True)
    sys.stdin.read()

async def main():
    (kind,) = kinds(name)
    onefold = Coloured(Onefold(url, schema=schema), kind.colour)
    connection = await kind.open(Store(dialect, url, schema))
    await connection.begin()
    await connection.execute(insert)
    await onefold.within(connection.raw).enqueue("email", unique_key="k", idempotency_key="K")
    if moment == "before the commit":
        wait_for_death()
    await connection.commit()
    wait_for_death()

asyncio.run(main())
"""

VICTIMS = kinds(
    "aiosqlite-legacy",
    "sqlalchemy-psycopg-connection",
    "sqlalchemy-psycopg-session",
    "sqlalchemy-pysqlite-session",
    "sqlalchemy-async-asyncpg-session",
    "sqlalchemy-async-aiosqlite-session",
    "django-postgres",
    "django-sqlite",
)

Kill: TypeAlias = Callable[[str], None]


@pytest.fixture
def kill(kind: Kind, store: Store, effects: Effects) -> Iterator[Kill]:
    """Run the caller up to a moment, and kill it there."""
    started: list[subprocess.Popen[str]] = []

    def run(moment: str) -> None:
        arguments = [kind.name, store.dialect, store.url, store.schema, effects.insert(7), moment]
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.kill()
        assert process.wait() == -signal.SIGKILL

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("kind", "dialect"),
    [(kind, kind.dialect) for kind in VICTIMS],
    ids=[kind.name for kind in VICTIMS],
)
async def test_what_is_killed_before_its_commit_has_stored_nothing(
    kill: Kill, onefold: Coloured, effects: Effects
) -> None:
    kill("before the commit")

    # It waits for the server to notice; then the keys are free.
    again = await onefold.enqueue("email", unique_key="k", idempotency_key="K")
    assert again.inserted
    assert effects.numbers == []
    assert effects.jobs == [("email", "k")]

    await onefold.keys.erase(key="K")
    await onefold.keys.erase(key="k")
    kill("after the commit")

    assert effects.numbers == [7]
    assert effects.jobs == [("email", "k")]
    assert (await onefold.enqueue("email", unique_key="k")).duplicate
