"""The contract with `onefold_enqueue`: answers, keys, publish keys and suppressed duplicates."""

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from onefold_contract.cases.answers import TestAnswers, TestMismatch, TestNameSpaces
from onefold_contract.cases.on_duplicate import TestKeep, TestRaise
from onefold_contract.cases.publish_keys import (
    TestPublishKeys,
    TestPublishKeysAndUniqueKeys,
    TestPublishKeysExpire,
)
from onefold_contract.cases.scopes import TestHoldersScope, TestScopes, TestWindows
from onefold_contract.cases.suppressed import TestSuppressed
from tests.fixtures.citus import distribute
from tests.fixtures.postgres import drop_schema
from tests.fixtures.proof import SOAK
from tests.sql_function.from_sql import FromSql

__all__ = [
    "TestAnswers", "TestHoldersScope", "TestKeep", "TestMismatch", "TestNameSpaces",
    "TestPublishKeys", "TestPublishKeysAndUniqueKeys", "TestPublishKeysExpire", "TestRaise",
    "TestScopes", "TestSuppressed", "TestWindows",
]  # fmt: skip


@pytest.fixture(scope="module", params=[4, 1] if SOAK else [4])
def opened(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[FromSql]:
    subject = FromSql(postgres_url, schema=f"from_sql_{uuid4().hex}", shards=request.param)
    subject.open()
    distribute(postgres_url, subject.schema)
    yield subject
    subject.close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        drop_schema(connection, subject.schema)


@pytest.fixture
def subject(opened: FromSql) -> FromSql:
    opened.reset()
    return opened
