"""API keys: create, list, revoke, look up, charge.

A key is stored on the shard of its id. A look-up writes nothing. Only a key with a rate is
charged, under a lock on its row.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from onefold.model.api_key import (
    ApiKey,
    Scope,
    Shown,
    StoredApiKey,
    from_row,
    known_from_row,
)
from onefold.model.ids import hash12
from onefold.model.limit import stored_rate
from onefold.operations.statement import read_all_shards, shard_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onefold.model.limit import Rate
    from onefold.operations.statement import Operation, Row, Sql

COLUMNS = ("shard", "id")


class ApiKeyEnded(Exception):
    """An API key was revoked, or has expired."""


class NewApiKeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a new key."""

    shown: Shown
    tenant: str
    name: str
    scopes: tuple[Scope, ...]
    rate: tuple[int | None, int | None]
    expires_in: int | None


def create(sql: Sql, wish: NewApiKeyRow) -> Operation[ApiKey]:
    """Store a key. A repeated call changes nothing: the caller makes the id and the secret."""
    count, period = wish.rate
    rows = yield sql(
        "insert_api_key",
        shard=home_of(sql, wish.shown.id),
        id=wish.shown.id,
        tenant=wish.tenant,
        called=wish.name,
        scopes=" ".join(wish.scopes),
        digest=wish.shown.digest,
        rate_count=count,
        rate_period=period,
        expires_in=wish.expires_in,
    )
    return from_row(rows[0])


def find(sql: Sql, tenant: str | None) -> Operation[list[ApiKey]]:
    """All keys, or those of a tenant, oldest first, revoked ones included."""
    rows = yield from read_all_shards(sql, "find_api_keys", tenant=tenant)
    return sorted(map(from_row, rows), key=lambda key: (key.created_at, key.id))


def revoke(sql: Sql, key_id: str) -> Operation[bool]:
    """Revoke a key; False if there is none, or it is revoked already."""
    rows = yield sql("revoke_api_key", shard=home_of(sql, key_id), id=key_id)
    return bool(rows)


def are_any(sql: Sql) -> Operation[bool]:
    """Whether a key was ever created."""
    for shard in range(sql.shards):
        if (yield sql("has_api_keys", shard=shard)):
            return True
    return False


def read(sql: Sql, ids: Sequence[str]) -> Operation[list[StoredApiKey | None]]:
    """The stored keys with these ids."""
    known: dict[str, StoredApiKey] = {}
    for rows in _places(sql, ids):
        found = yield sql("read_api_keys", COLUMNS, rows)
        known.update((row[0], known_from_row(row)) for row in found)
    return [known.get(key_id) for key_id in ids]


def confirm(sql: Sql, ids: Iterable[str]) -> Operation[None]:
    """Raise `ApiKeyEnded` if one of these keys is not valid any more."""
    wanted = sorted(set(ids))
    if wanted:
        for known in (yield from read(sql, wanted)):
            if known is None or not known.live:
                raise ApiKeyEnded


def charge(sql: Sql, ids: Sequence[str]) -> Operation[list[int]]:
    """Take one token per use from the bucket of its key.

    Returns the microseconds to wait if there was no token, else 0.
    """
    wanted = Counter(ids)
    waits: dict[str, Iterator[int]] = {}
    for rows in _places(sql, wanted):
        locked = yield sql("lock_api_keys", COLUMNS, rows)
        shard, spent = rows[0][0], list[tuple[int, str, int]]()
        for row in locked:
            key_id, rate, full_at, now = _bucket(row)
            granted = min(rate.left(full_at, now), wanted[key_id])
            after = rate.spent(full_at, now, granted)
            refused = wanted[key_id] - granted
            waits[key_id] = iter([0] * granted + [rate.wait(after, now)] * refused)
            if granted:
                spent.append((shard, key_id, after))
        if spent:
            yield sql("save_api_key_rates", ("shard", "id", "full_at"), spent)
    # A key that has no rate any more does not wait.
    return [next(waits.get(key_id, iter(())), 0) for key_id in ids]


def _bucket(row: Row) -> tuple[str, Rate, int, int]:
    key_id, count, period, full_at, now = row
    rate: Any = stored_rate(count, period)
    return key_id, rate, rate.believed(full_at, now), now


def _places(sql: Sql, ids: Iterable[str]) -> list[list[tuple[int, str]]]:
    """The keys of each shard, in lock order."""
    return shard_runs({(home_of(sql, key_id), key_id) for key_id in ids})


def home_of(sql: Sql, key_id: str) -> int:
    """The shard of a key."""
    return hash12("api_key", key_id) % sql.shards
