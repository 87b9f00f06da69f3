"""Whom the contract suite examines behind PgBouncer: nobody leaves a prepared statement behind."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import asyncpg
import psycopg

from onefold import Onefold
from onefold.testing.subjects import (
    AsyncSubject,
    Subject,
    SyncSubject,
    WithinAsyncpg,
    WithinPsycopg,
)


class Pooled(Subject):
    """A subject whose Onefold prepares nothing."""

    def __init__(self, url: str, *, schema: str = "onefold", shards: int | None = None) -> None:
        super().__init__(url, schema=schema, shards=shards)
        self.onefold = Onefold(
            url,
            schema=schema,
            shards=shards,
            prepared_statements=False,
            clock=lambda: self._clocks[0].now,
        )


class PooledSync(Pooled, SyncSubject):
    """Blocking calls."""


class PooledAsync(Pooled, AsyncSubject):
    """Awaited calls."""


class PooledWithinPsycopg(Pooled, WithinPsycopg):
    """Within the transaction of a caller who knows of the pooler."""

    @contextmanager
    def transaction(self) -> Generator[object]:
        if not self._connections:
            self._connections.append(psycopg.connect(self.url, prepare_threshold=None))
        with super().transaction() as connection:
            yield connection


class PooledWithinAsyncpg(Pooled, WithinAsyncpg):
    """Within the transaction of a caller of asyncpg who knows of the pooler."""

    async def connect(self) -> Any:
        return await asyncpg.connect(self.url, statement_cache_size=0)
