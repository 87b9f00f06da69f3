"""Stored keys, for their operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from onefold.model.stored_key import KeyPage, KeyState, StoredKey, cursor

if TYPE_CHECKING:
    from onefold.operations.statement import Operation, Sql

HIDDEN: Final = frozenset({"chore", "cron", "step"})


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
    found: list[StoredKey] = []
    for shard in range(sql.shards):
        # One more than was asked for tells whether there is a next page.
        left = limit + 1
        for surface in (yield from _surfaces(sql, shard, wanted, after[0])):
            scope, key = _start(wanted, surface, after)
            rows = yield sql(
                "find_keys",
                shard=shard,
                tenant=wanted.tenant,
                surface=surface,
                scope=wanted.scope,
                key=wanted.key,
                state=wanted.state,
                after_scope=scope,
                after_key=key,
                limit=left,
                results=results,
            )
            found += map(StoredKey.from_row, rows)
            left -= len(rows)
            if not left:
                break
    # As databases compare text here: by its bytes.
    found.sort(key=lambda one: _bytes(*one.place))
    page = tuple(found[:limit])
    return KeyPage(page, cursor(page[-1].place) if len(found) > limit else None)


def _surfaces(sql: Sql, shard: int, wanted: Filter, after: str) -> Operation[list[str]]:
    """Where to look, in order. What belongs to jobs and chores is shown to who asks for it."""
    if wanted.surface is not None:
        return [wanted.surface] if _bytes(wanted.surface) >= _bytes(after) else []
    rows = yield sql("find_surfaces", shard=shard, tenant=wanted.tenant, after_surface=after)
    return [surface for (surface,) in rows if surface not in HIDDEN]


def _start(wanted: Filter, surface: str, after: tuple[str, str, str]) -> tuple[str, str]:
    """The place behind which the keys of a surface are wanted."""
    first = (wanted.scope or "", "")
    return max(first, after[1:], key=lambda place: _bytes(*place)) if surface == after[0] else first


def _bytes(*parts: str) -> tuple[bytes, ...]:
    return tuple(part.encode() for part in parts)
