"""The contract, sat by `onefold_enqueue`: what an enqueue answers, holds, publishes and notes.

A test that asks for what the function does not have is named here, with what it asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from onefold.errors import InvalidInput
from onefold.model.job import NewJob
from onefold.model.retention import Retention
from onefold_contract.cases import (
    answers,
    batches,
    on_duplicate,
    publish_keys,
    rerun,
    scopes,
    shards,
    suppressed,
)
from tests.fixtures.citus import distribute
from tests.sql_function.from_sql import FromSql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T", bound=type)

RESENT: Final = "the ids of an earlier try"
RETENTION: Final = "retention"
MISSING: Final[dict[str, set[str]]] = {}
"""What cannot be asked for from SQL, and the tests of the contract that ask for it."""


def without(why: str, *names: str) -> Callable[[T], T]:
    """The tests of a class but these."""

    def left_out(suite: T) -> T:
        for name in names:
            assert callable(getattr(suite, name)), f"the contract has no {name} any more"
            setattr(suite, name, None)
        MISSING.setdefault(why, set()).update(names)
        return suite

    return left_out


@pytest.fixture(scope="module", params=[1, 4], ids=["x1", "x4"])
def opened(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[FromSql]:
    subject = FromSql(postgres_url, schema=f"from_sql_{uuid4().hex}", shards=request.param)
    subject.open()
    distribute(postgres_url, subject.schema)
    yield subject
    subject.close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = sql.Identifier(subject.schema)
        connection.execute(sql.SQL("drop schema {} cascade").format(name))


@pytest.fixture
def subject(opened: FromSql) -> FromSql:
    opened.reset()
    return opened


class TestAnswers(answers.TestAnswers): ...


class TestNameSpaces(answers.TestNameSpaces): ...


class TestMismatch(answers.TestMismatch): ...


class TestPayloads(answers.TestPayloads): ...


@without(RESENT, *(name for name in vars(answers.TestLostAnswers) if name.startswith("test_")))
class TestLostAnswers(answers.TestLostAnswers): ...


class TestBatches(batches.TestBatches): ...


class TestAllOrNothing(batches.TestAllOrNothing): ...


class TestScopes(scopes.TestScopes): ...


class TestWindows(scopes.TestWindows): ...


class TestHoldersScope(scopes.TestHoldersScope): ...


class TestKeysNeverReturn(scopes.TestKeysNeverReturn): ...


@without(
    RETENTION,
    "test_it_is_known_when_the_job_is_pruned",
    "test_it_is_known_when_no_record_was_kept",
)
class TestPublishKeys(publish_keys.TestPublishKeys): ...


class TestPublishKeysAndUniqueKeys(publish_keys.TestPublishKeysAndUniqueKeys): ...


class TestPublishKeysExpire(publish_keys.TestPublishKeysExpire): ...


class TestPublishKeysInBatches(publish_keys.TestPublishKeysInBatches): ...


class TestKeep(on_duplicate.TestKeep): ...


class TestRaise(on_duplicate.TestRaise): ...


class TestReplace(on_duplicate.TestReplace): ...


class TestDebounce(on_duplicate.TestDebounce): ...


class TestRerun(rerun.TestRerun): ...


@without(RETENTION, "test_a_record_that_is_not_kept_hands_its_key_over_too")
class TestEndings(rerun.TestEndings): ...


@without(RETENTION, "test_it_is_the_whole_request")
class TestSuccessors(rerun.TestSuccessors): ...


@without(RETENTION, "test_those_of_a_job_that_is_gone_leave_nothing_behind")
class TestSuppressed(suppressed.TestSuppressed): ...


class TestTurns(shards.TestTurns): ...


class TestShardOrder(shards.TestShardOrder): ...


class TestAllShards:
    """What an enqueue of many does; the rest is about other calls."""

    test_every_queued_holder_takes_the_newer_request = (
        shards.TestAllShards.test_every_queued_holder_takes_the_newer_request
    )
    test_every_successor_is_stored_when_its_holder_ends = (
        shards.TestAllShards.test_every_successor_is_stored_when_its_holder_ends
    )


def test_what_is_missing_cannot_be_asked_for(subject: FromSql) -> None:
    """Or its tests could be sat."""
    with psycopg.connect(subject.url) as connection:
        cursor: psycopg.Cursor[Any] = connection.execute(
            "select p.proname, p.proargnames from pg_proc as p"
            " where p.pronamespace = %s::regnamespace and p.proname like 'onefold%%'",
            [subject.schema],
        )
        found = cursor.fetchall()
    assert sorted(name for name, _ in found) == ["onefold_enqueue"] * 3 + ["onefold_enqueue_many"]
    assert [names for _, names in found if RETENTION in names] == []
    with pytest.raises(InvalidInput, match="item 0: retention is no option of a job"):
        subject.enqueue_many([NewJob("email", retention=Retention())])
    assert set(MISSING) == {RESENT, RETENTION}
