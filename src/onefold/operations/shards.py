"""Rows grouped by the shard that their ids name, in the one order in which rows are locked."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from onefold.model.identity import shard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onefold.operations.statement import Sql

T = TypeVar("T")


def by_shard(sql: Sql, items: Iterable[T], id_of: Callable[[T], str]) -> list[tuple[int, list[T]]]:
    """Group by shard, in shard order, each group sorted by id."""
    groups: dict[int, list[T]] = {}
    for item in items:
        groups.setdefault(shard_of(id_of(item), sql.shards), []).append(item)
    return [(shard, sorted(groups[shard], key=id_of)) for shard in sorted(groups)]


def ids_by_shard(sql: Sql, ids: Iterable[str]) -> list[tuple[int, list[tuple[int, str]]]]:
    """The rows of each shard, as parameters of a statement that takes (shard, id)."""
    return [
        (shard, [(shard, job_id) for job_id in group])
        for shard, group in by_shard(sql, set(ids), str)
    ]
