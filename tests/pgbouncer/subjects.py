"""The subjects of the contract suite behind PgBouncer: none of them leaves a prepared statement."""

from typing import Any

import asyncpg
import psycopg

from onefold_contract.subjects import (
    AsyncSubject,
    Subject,
    SyncSubject,
    WithinAsyncpg,
    WithinPsycopg,
)


class Pooled(Subject):
    """A subject whose Onefold prepares nothing."""

    def __init__(self, url: str, *, schema: str) -> None:
        super().__init__(url, schema=schema, prepared_statements=False)


class PooledSync(Pooled, SyncSubject):
    """Blocking calls."""


class PooledAsync(Pooled, AsyncSubject):
    """Awaited calls."""


class PooledWithinPsycopg(Pooled, WithinPsycopg):
    """Within the transaction of a caller who knows of the pooler."""

    def connect(self) -> Any:
        return psycopg.connect(self.url, prepare_threshold=None)


class PooledWithinAsyncpg(Pooled, WithinAsyncpg):
    """Within the transaction of a caller of asyncpg who knows of the pooler."""

    async def connect(self) -> Any:
        return await asyncpg.connect(self.url, statement_cache_size=0)
