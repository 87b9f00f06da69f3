"""Stored keys, for their operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onefold.model.stored_key import KeyPage, KeyState, StoredKey, cursor

if TYPE_CHECKING:
    from onefold.operations.statement import Operation, Sql


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys are meant; None is any."""

    tenant: str
    surface: str | None = None
    scope: str | None = None
    key: str | None = None
    state: KeyState | None = None


def find(
    sql: Sql, wanted: Filter, *, after: tuple[str, str, str], limit: int, results: bool
) -> Operation[KeyPage]:
    """A page of keys, in the order of surface, scope and key: of all shards, merged."""
    surface, scope, key = after
    found: list[StoredKey] = []
    for shard in range(sql.shards):
        rows = yield sql(
            "find_keys",
            shard=shard,
            tenant=wanted.tenant,
            surface=wanted.surface,
            scope=wanted.scope,
            key=wanted.key,
            state=wanted.state,
            after_surface=surface,
            after_scope=scope,
            after_key=key,
            # One more than was asked for tells whether there is a next page.
            limit=limit + 1,
            results=results,
        )
        found += map(StoredKey.from_row, rows)
    # As databases compare text here: by its bytes.
    found.sort(key=lambda one: tuple(part.encode() for part in one.place))
    page = tuple(found[:limit])
    return KeyPage(page, cursor(page[-1].place) if len(found) > limit else None)
