"""The contract on both databases: sync, async and within a caller's transaction; 1 and 4 shards.

`make test` runs all cases on (sqlite, sync) and (postgres, async), those about shards on several,
and those about calls of `Within` within a transaction, too. `make prove` runs six subjects: each
database, each style and both numbers of shards are among them. `make soak` runs all sixteen.
"""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from onefold_contract.cases import *  # noqa: F403 - the tests themselves
from onefold_contract.subjects import (
    AsyncSubject,
    Subject,
    SyncSubject,
    WithinAsyncpg,
    WithinAsyncPsycopg,
    WithinPsycopg,
    WithinSqlite3,
)
from tests.fixtures.citus import distribute
from tests.fixtures.proof import SOAK

SUBJECTS: dict[str, type[Subject]] = {
    "sqlite-sync": SyncSubject,
    "sqlite-async": AsyncSubject,
    "sqlite-within-sqlite3": WithinSqlite3,
    "postgres-sync": SyncSubject,
    "postgres-async": AsyncSubject,
    "postgres-within-psycopg": WithinPsycopg,
    "postgres-within-async-psycopg": WithinAsyncPsycopg,
    "postgres-within-asyncpg": WithinAsyncpg,
}

EVERY_CASE = [f"{name}-x{shards}" for shards in (1, 4) for name in SUBJECTS]
PAIR = ("sqlite-sync-x1", "postgres-async-x1")
WITHIN = ("sqlite-within-sqlite3-x1", "postgres-within-asyncpg-x1")
SHARDED = ("sqlite-async-x4", "postgres-sync-x4")
MORE = {
    "answers": WITHIN,
    "batches": WITHIN + SHARDED,
    "claims": WITHIN + SHARDED,
    "groups": SHARDED[1:],
    "limits": SHARDED[1:],
    "on_duplicate": WITHIN,
    "publish_keys": WITHIN + SHARDED,
    "served_queues": SHARDED[1:],
    "shards": SHARDED,
}
"""What `make test` runs beside the pair, by the module of a case."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" not in metafunc.fixturenames:
        return
    module = metafunc.function.__module__.rpartition(".")[2]
    few = (*PAIR, *MORE.get(module, ()))
    # Bad input is rejected before a statement is sent: more subjects would show nothing new.
    others = () if module == "bad_input" else (*WITHIN, *SHARDED)
    long = [pytest.param(case, marks=pytest.mark.prove) for case in others if case not in few]
    metafunc.parametrize("subject", EVERY_CASE if SOAK else [*few, *long], indirect=True)


class Examinees:
    """The subjects of a session, each opened once: a migration costs more than a test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: dict[tuple[str, int], Subject] = {}

    def get(self, name: str, shards: int, url: str | None) -> Subject:
        if (name, shards) not in self._opened:
            database = url or f"sqlite:///{self._folder / name}-{shards}.db"
            subject = SUBJECTS[name](database, schema=f"contract_{uuid4().hex}", shards=shards)
            subject.open()
            if url is not None:
                distribute(url, subject.schema)
            self._opened[name, shards] = subject
        return self._opened[name, shards]

    def close(self) -> None:
        for subject in self._opened.values():
            subject.close()
            if subject.url.startswith("postgres"):
                with psycopg.connect(subject.url, autocommit=True) as connection:
                    connection.execute(
                        sql.SQL("drop schema {} cascade").format(sql.Identifier(subject.schema))
                    )


@pytest.fixture(scope="session")
def examinees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examinees]:
    found = Examinees(tmp_path_factory.mktemp("contract"))
    yield found
    found.close()


@pytest.fixture
def subject(request: pytest.FixtureRequest, examinees: Examinees) -> Subject:
    name, _, shards = request.param.rpartition("-x")
    url = request.getfixturevalue("postgres_url") if name.startswith("postgres") else None
    found = examinees.get(name, int(shards), url)
    found.reset()
    return found
