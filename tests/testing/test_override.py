"""`Onefold.override` points an application at another database, with all that belongs to it."""

import sqlite3
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onefold import InvalidInput, Onefold, Run
from onefold.errors import DatabaseUnavailable, UsageError, WrongConnection
from onefold.testing import adrain, aenqueued, drain, enqueued
from onefold.testing.plugin import new_database
from tests.fixtures.place import Place
from tests.fixtures.proof import proved


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """The database that no test may touch: its file must not exist at the end."""
    return tmp_path / "production.db"


@pytest.fixture
def onefold(first: Path) -> Generator[Onefold]:
    with Onefold(f"sqlite:///{first}") as onefold:
        yield onefold
    assert not first.exists()


@pytest.fixture(params=["sqlite", *proved("postgres")])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """A new database for one test."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'test.db'}"
    else:
        with new_database(request.getfixturevalue("postgres_url")) as url:
            yield url


def test_all_that_belongs_to_the_object_uses_the_other_database(onefold: Onefold, url: str) -> None:
    done: list[str] = []
    alice = onefold.tenant("alice")
    nouns = onefold.queues, onefold.schedules, onefold.deliveries, onefold.keys, onefold.dead

    @onefold.job
    def work(run: Run, name: str) -> None:
        run.step("note", lambda: done.append(name))

    with onefold.override(url):
        onefold.migrate()
        work.enqueue("mine")
        work.tenant("alice").enqueue("hers")
        alice.enqueue("work", {"name": "hers too"})
        onefold.cron("0 0 * * *", name="daily")(work.call("daily"))
        for noun in nouns[:2]:
            noun.find()
        with onefold.once("import", "key") as claim:
            assert claim.won
        with onefold.lock("a lock"):
            pass
        drain(onefold)

    assert sorted(done) == ["hers", "hers too", "mine"]
    with Onefold(url) as other:
        assert len(enqueued(other)) == 1
        assert len(enqueued(other.tenant("alice"))) == 2


def test_after_the_block_the_first_database_is_used_again_as_it_was(
    place: Place, tmp_path: Path
) -> None:
    with place.open() as onefold:
        before = onefold.enqueue("email", unique_key="a key")
        with onefold.override(f"sqlite:///{tmp_path / 'test.db'}"):
            assert onefold.enqueue("email", unique_key="a key").inserted
            assert onefold.enqueue("email", unique_key="a key").duplicate
            drain(onefold)
        contents = place.contents()

        assert onefold.enqueue("email", unique_key="a key").id == before.id
        assert [job.id for job in enqueued(onefold)] == [before.id]
    assert len(contents[place.table("job")]) == 1
    assert contents[place.table("duplicate")] == []


def test_blocks_can_be_nested(onefold: Onefold, tmp_path: Path, url: str) -> None:
    with onefold.override(url):
        onefold.migrate()
        onefold.enqueue("outer")
        with onefold.override(f"sqlite:///{tmp_path / 'inner.db'}"):
            onefold.enqueue("inner")
            assert [job.kind for job in enqueued(onefold)] == ["inner"]
        assert [job.kind for job in enqueued(onefold)] == ["outer"]


async def test_a_block_can_be_awaited(onefold: Onefold, url: str) -> None:
    done: list[int] = []

    @onefold.job
    async def work(number: int) -> None:
        done.append(number)

    async with onefold.override(url):
        await onefold.amigrate()
        await work.aenqueue(7)
        await adrain(onefold)
        assert len(await aenqueued(onefold)) == 1
        with onefold.override(url):
            assert len(await aenqueued(onefold)) == 1
    assert "production" in repr(onefold)
    assert done == [7]


def test_a_connection_to_the_first_database_is_refused_inside(
    onefold: Onefold, first: Path, url: str
) -> None:
    with closing(sqlite3.connect(first)) as connection:
        connection.execute("begin immediate")
        with onefold.override(url), pytest.raises(WrongConnection):
            onefold.within(connection).enqueue("email")
        connection.rollback()
    first.unlink()


def test_a_block_is_entered_once(onefold: Onefold, url: str) -> None:
    block = onefold.override(url)
    with block, pytest.raises(UsageError, match="entered already"), block:
        pass
    with pytest.raises(UsageError, match="entered already"), block:
        pass
    assert "production" in repr(onefold)


def test_blocks_may_end_in_another_order(onefold: Onefold, tmp_path: Path) -> None:
    """As those of two tasks do."""
    one, other = (onefold.override(f"sqlite:///{tmp_path / name}.db") for name in ("one", "other"))

    with one:
        other.__enter__()
    assert "other.db" in repr(onefold)
    onefold.enqueue("email")
    other.__exit__(None, None, None)

    assert "production" in repr(onefold)


def test_a_database_that_cannot_be_opened_leaves_the_first_one(
    onefold: Onefold, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'no such folder' / 'test.db'}"
    with pytest.raises(DatabaseUnavailable), onefold.override(url):
        onefold.enqueue("email")

    assert "production" in repr(onefold)


def test_what_is_no_url_or_no_clock_is_refused(onefold: Onefold, url: str) -> None:
    wrong: Any = 7
    with pytest.raises(InvalidInput):
        onefold.override("mysql://app@db/orders")
    with pytest.raises(InvalidInput):
        onefold.override(wrong)
    with pytest.raises(InvalidInput):
        onefold.override(url, clock=wrong)
    assert "production" in repr(onefold)
