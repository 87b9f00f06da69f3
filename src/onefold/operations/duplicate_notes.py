"""Notes of suppressed duplicates: bookkeeping for `why`, of the keys of jobs and of claims."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from onefold.operations.statement import by_shard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.model.claim import ClaimKey
    from onefold.model.job import Enqueued
    from onefold.model.new_job import Prepared
    from onefold.operations.statement import Operation, Sql

NOTE_COLUMNS: Final = ("shard", "job_id", "at", "request_id")


class Note(NamedTuple):
    """A request that a key has suppressed."""

    holder: ClaimKey | str
    """The key of a claim, or the id of a job."""
    at: int | None
    """The time of the answer; None: now."""
    request_id: str | None


def notes_of(
    items: Sequence[Prepared], answers: Sequence[Enqueued], at: int | None = None
) -> list[Note]:
    """The notes of a call, whose answers are in the order of its items."""
    return [
        Note(answer.id, at, item.request_id)
        for item, answer in zip(items, answers, strict=True)
        # Without a job, the notes about duplicates would never be deleted.
        if answer.duplicate and answer.state is not None
    ]


def note(sql: Sql, notes: Sequence[Note]) -> Operation[None]:
    """Store notes. Append-only: no other transaction waits for these rows."""
    of_claims: list[tuple[int, str, int | None, str | None]] = []
    of_jobs: list[tuple[str, int | None, str | None]] = []
    for holder, at, request_id in notes:
        if isinstance(holder, str):
            of_jobs.append((holder, at, request_id))
        else:
            of_claims.append((holder.place(sql.shards)[0], holder.notes, at, request_id))
    if of_claims:
        yield sql("note_duplicates", NOTE_COLUMNS, sorted(of_claims, key=itemgetter(0)))
    for shard, some in by_shard(sql, of_jobs, itemgetter(0)):
        rows = [(shard, *note) for note in some]
        name = "log_routed_duplicates" if sql.distributed else "log_duplicates"
        yield sql(name, NOTE_COLUMNS, rows, common=frozenset({"shard"}))
