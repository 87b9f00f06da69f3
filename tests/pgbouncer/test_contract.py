"""The contract behind PgBouncer: each call's transaction may run in another session.

`make prove` runs one subject, without the bad input, which is rejected before a statement is sent.
`make soak` runs all cases on all four.
"""

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from onefold_contract.cases import *  # noqa: F403 - the tests themselves
from tests.fixtures.pgbouncer import PgBouncer
from tests.fixtures.postgres import drop_schema
from tests.fixtures.proof import SOAK
from tests.pgbouncer.subjects import (
    Pooled,
    PooledAsync,
    PooledSync,
    PooledWithinAsyncpg,
    PooledWithinPsycopg,
)

if not SOAK:
    del TestBadInput, TestBadQuestions  # noqa: F821 - imported above

pytestmark = pytest.mark.prove

SUBJECTS: dict[str, type[Pooled]] = {
    "sync": PooledSync,
    "async": PooledAsync,
    "within-psycopg": PooledWithinPsycopg,
    "within-asyncpg": PooledWithinAsyncpg,
}


class Examinees:
    """The subjects of a session, each opened once: a migration costs more than a test."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.opened: dict[str, Pooled] = {}

    def get(self, name: str) -> Pooled:
        if name not in self.opened:
            subject = SUBJECTS[name](self._url, schema=f"contract_{uuid4().hex}")
            subject.open()
            self.opened[name] = subject
        return self.opened[name]


@pytest.fixture(scope="session")
def examinees(pgbouncer: PgBouncer, postgres_url: str) -> Iterator[Examinees]:
    found = Examinees(pgbouncer.url)
    yield found
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for subject in found.opened.values():
            subject.close()
            drop_schema(connection, subject.schema)


@pytest.fixture(params=SUBJECTS if SOAK else ["sync"])
def subject(request: pytest.FixtureRequest, examinees: Examinees) -> Pooled:
    found = examinees.get(request.param)
    found.reset()
    return found
