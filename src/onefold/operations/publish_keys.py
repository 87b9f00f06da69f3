"""Publish keys: one publish is stored once, whatever happens to its job.

A publish key is a settled claim whose result is the id of the job. It is checked before the unique
key, and it never expires before its job has ended.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.model.claim import ClaimKey, ClaimPlace, Holding, StoredClaim
from onefold.model.job import Enqueued, JobState, state_of
from onefold.model.new_job import INSERT_COLUMNS
from onefold.operations.statement import ids_by_shard, shard_runs
from onefold.operations.unique_keys import (
    CHUNK,
    COMMON_COLUMNS,
    STORE_COLUMNS,
    NeverSettled,
    store_row,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onefold.model.new_job import Prepared
    from onefold.operations.statement import Operation, Row, Sql

SURFACE: Final = "publish"

KEY_COLUMNS: Final = ("shard", "tenant", "surface", "scope", "key")
INSERT_CLAIM_COLUMNS: Final = (
    *KEY_COLUMNS, "id", "state", "takeover", "lease", "keep", "fingerprint", "result", "lock",
)  # fmt: skip
ROW_COLUMNS: Final = ("id", "shard", "tenant", "scope", "key", "keep", "fingerprint")
TAKE_OVER_COLUMNS: Final = (
    *KEY_COLUMNS, "id", "owner", "state", "takeover", "lease", "keep", "fingerprint", "result",
    "seen_fence", "seen_state", "seen_owner",
)  # fmt: skip

PUBLISH_COLUMNS: Final = (*STORE_COLUMNS, "key", "fingerprint", "keep", "api_key")
PUBLISH_ONE_COLUMNS: Final = (*STORE_COLUMNS, "key", "mark", "keep")
PUBLISH_UNIQUE_COLUMNS: Final = (*INSERT_COLUMNS, "key", "mark", "keep")


class PublishKeyState(msgspec.Struct, frozen=True):
    """What a publish key means for an item of the call."""

    job_id: str
    fresh: bool = True
    """True: this call has just stored the key."""
    state: JobState | None = None
    """Of the job, if another call has stored the key; None if the job is deleted."""
    mismatch: bool = False
    leader: int | None = None
    """The earlier item of the same call with the same key."""
    fingerprint: str | None = None
    """The fingerprint of the request that stored the key."""


class Keyed(msgspec.Struct, frozen=True):
    """An item of the call that has a publish key."""

    index: int
    job_id: str
    place: ClaimPlace
    fingerprint: str
    keep: int

    @property
    def row(self) -> tuple[Any, ...]:
        """The stored values of the key, in the columns that an insert and a takeover share."""
        return (int(Holding.SETTLED), 0, None, self.keep, self.fingerprint, self.job_id)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the key in `ROW_COLUMNS`."""
        shard, tenant, _, scope, key = self.place
        return (self.job_id, shard, tenant, scope, key, self.keep, self.fingerprint)


def publish_one(sql: Sql, item: Prepared) -> Operation[Enqueued | None]:
    """Store a job with its publish key, or find the job that a key stands for, in one statement.

    None: a rival was faster, or a key has to be taken over, and nothing was stored. A rival for the
    unique key is an error of the database, after which the call is tried again with `resends`.
    """
    assert item.publish is not None
    request, publish = item.request, item.publish
    keys = (publish.key.key, publish.fingerprint, publish.keep)
    notify = sql.notify((request.queue,))
    # Both statements set their own lock timeout, so they need no transaction block.
    if request.unique_key is None:
        row = (*store_row(request), *keys)
        rows = yield sql(
            "publish_job", PUBLISH_ONE_COLUMNS, [row], each=True, alone=True, waits=False, **notify
        )
    else:
        row = (*msgspec.structs.astuple(request), *keys)
        rows = yield sql(
            "publish_unique_job",
            PUBLISH_UNIQUE_COLUMNS,
            [row],
            each=True,
            alone=True,
            waits=False,
            **notify,
        )
    return _published(item, rows[0]) if rows else None


def _published(item: Prepared, row: Row) -> Enqueued | None:
    """The result of a publish; None if its key is over."""
    job_id, is_over, mismatch, stored, attempt, run_at, awaits, now = row
    if is_over:
        return None
    if job_id == item.request.id:
        return Enqueued(job_id, state=item.state)
    state = None
    if stored is not None:
        state = state_of(stored, attempt=attempt, run_at=run_at, now=now, awaits=awaits)
    return Enqueued(job_id, duplicate=True, state=state, mismatch=mismatch)


def publish_at_once(sql: Sql, items: Sequence[Prepared]) -> Operation[dict[str, Enqueued]]:
    """`publish_one` for items without unique keys; the results by the items' ids.

    An item whose API key is not valid has none.
    """
    keyed = sorted(
        [(item.publish.key, index) for index, item in enumerate(items) if item.publish is not None]
    )
    rows = yield sql(
        "publish_jobs",
        PUBLISH_COLUMNS,
        [_publish_row(items[index]) for _, index in keyed],
        common=COMMON_COLUMNS | {"keep", "api_key"},
        alone=True,
        # It sets its own lock timeout.
        waits=False,
        **sql.notify(item.request.queue for item in items),
    )
    of_id = {item.request.id: item for item in items}
    answers = [(row[0], _published(of_id[row[0]], row[1:])) for row in rows if row[0] is not None]
    return {request_id: answer for request_id, answer in answers if answer is not None}


def _publish_row(item: Prepared) -> tuple[Any, ...]:
    assert item.publish is not None
    publish = item.publish
    values = (publish.key.key, publish.fingerprint, publish.keep, item.api_key or "")
    return (*store_row(item.request), *values)


def claim_publish_keys(
    sql: Sql, items: Sequence[Prepared], published: dict[int, PublishKeyState], *, rounds: int
) -> Operation[None]:
    """Store the keys that are new and find the jobs of the others.

    `published` receives the meaning of each key, by the index of its item, as soon as it is known:
    the stored keys must be known even if this fails.
    """
    leaders, followers = _keyed(sql, items)
    pending = leaders
    for _ in range(rounds):
        if not pending:
            break
        for group in _by_shard(pending):
            yield from _insert(sql, group, published)
        pending = [keyed for keyed in pending if keyed.index not in published]
        for group in _by_shard(pending):
            yield from _find(sql, group, published)
        pending = [keyed for keyed in pending if keyed.index not in published]
    if pending:
        raise NeverSettled(
            f"the publish key {pending[0].place[-1]!r} changed hands {rounds} times meanwhile",
            waited=timedelta(0),
        )
    for keyed, leader in followers:
        published[keyed.index] = _follow(keyed, leader, published[leader.index])


def _keyed(sql: Sql, items: Sequence[Prepared]) -> tuple[list[Keyed], list[tuple[Keyed, Keyed]]]:
    """The first item of each key, in lock order, and the later items with their first one."""
    leaders: dict[ClaimKey, Keyed] = {}
    followers: list[tuple[Keyed, Keyed]] = []
    for index, item in enumerate(items):
        if item.publish is not None:
            key, fingerprint, keep = item.publish.key, item.publish.fingerprint, item.publish.keep
            keyed = Keyed(index, item.request.id, key.place(sql.shards), fingerprint, keep)
            leader = leaders.setdefault(key, keyed)
            if leader is not keyed:
                followers.append((keyed, leader))
    return sorted(leaders.values(), key=lambda keyed: keyed.place), followers


def _by_shard(pending: Sequence[Keyed]) -> Iterator[list[Keyed]]:
    """Runs of one shard, in lock order, none larger than a statement should be."""
    for _, run in groupby(pending, key=lambda keyed: keyed.place[0]):
        group = list(run)
        for start in range(0, len(group), CHUNK):
            yield group[start : start + CHUNK]


def _follow(keyed: Keyed, leader: Keyed, first: PublishKeyState) -> PublishKeyState:
    """A later item of the same call with the same key: it gets the job of the first."""
    return PublishKeyState(
        first.job_id,
        fresh=False,
        state=first.state,
        mismatch=keyed.fingerprint != first.fingerprint,
        leader=leader.index if first.fresh else None,
        fingerprint=first.fingerprint,
    )


def _insert(
    sql: Sql, group: Sequence[Keyed], published: dict[int, PublishKeyState]
) -> Operation[None]:
    if sql.inserts_row_by_row:
        rows = yield sql("insert_publish_key", ROW_COLUMNS, [k.values for k in group], each=True)
    else:
        rows = yield sql(
            "insert_claims",
            INSERT_CLAIM_COLUMNS,
            [(*keyed.place, keyed.job_id, *keyed.row, None) for keyed in group],
            shared=True,
        )
    _record(group, {row[0] for row in rows}, published)


def _record(group: Sequence[Keyed], won: set[str], published: dict[int, PublishKeyState]) -> None:
    for keyed in group:
        if keyed.job_id in won:
            published[keyed.index] = PublishKeyState(keyed.job_id, fingerprint=keyed.fingerprint)


def _find(
    sql: Sql, group: Sequence[Keyed], published: dict[int, PublishKeyState]
) -> Operation[None]:
    """The jobs of existing keys; a key is taken over if its time is over and its job has ended."""
    rows = yield sql("find_claims", KEY_COLUMNS, [keyed.place for keyed in group])
    stored: list[tuple[Keyed, StoredClaim]] = [
        (group[int(row[0])], StoredClaim(*row[1:])) for row in rows if row[1] is not None
    ]
    states = yield from _states(sql, [found.result for _, found in stored])
    taken: list[tuple[Any, ...]] = []
    for keyed, found in stored:
        job_id = found.result
        state = None if job_id is None else states.get(job_id)
        if job_id is None or _is_over(found, state):
            seen = (found.fence, found.state, found.owner)
            taken.append((*keyed.place, keyed.job_id, keyed.job_id, *keyed.row, *seen))
        else:
            published[keyed.index] = PublishKeyState(
                job_id,
                fresh=False,
                state=state,
                mismatch=found.fingerprint != keyed.fingerprint,
                fingerprint=found.fingerprint,
            )
    if taken:
        won = yield sql("take_over_claims", TAKE_OVER_COLUMNS, taken)
        _record(group, {owner for owner, _, _ in won}, published)


def _states(sql: Sql, ids: Iterable[str | None]) -> Operation[dict[str, JobState]]:
    states: dict[str, JobState] = {}
    for _, wanted in ids_by_shard(sql, (job_id for job_id in ids if job_id is not None)):
        rows = yield sql("job_states", ("shard", "id"), wanted)
        for job_id, stored, attempt, run_at, awaits, now in rows:
            states[job_id] = state_of(
                stored, attempt=attempt, run_at=run_at, now=now, awaits=awaits
            )
    return states


def _is_over(found: StoredClaim, state: JobState | None) -> bool:
    """Released by an operator, or expired; but never before its job has ended."""
    if found.state == Holding.FREE:
        return True
    ended = state is None or state in {"completed", "dead", "cancelled"}
    return ended and found.expires_at is not None and found.expires_at <= found.now


def point_publish_keys(
    sql: Sql,
    items: Sequence[Prepared],
    published: Mapping[int, PublishKeyState],
    answers: Sequence[str],
) -> Operation[None]:
    """A new key whose job was not inserted, because a unique key is held, points to the holder."""
    fresh = _fresh(sql, items, published)
    moved = [(*row, answers[index]) for index, row in fresh if answers[index] != row[-1]]
    for rows in shard_runs(moved):
        yield sql("point_claims", (*KEY_COLUMNS, "owner", "result"), rows)


def forget_publish_keys(
    sql: Sql, items: Sequence[Prepared], published: Mapping[int, PublishKeyState]
) -> Operation[None]:
    """Delete the keys that this call has stored."""
    for rows in shard_runs(row for _, row in _fresh(sql, items, published)):
        yield sql("delete_claims", (*KEY_COLUMNS, "owner"), rows)


def _fresh(
    sql: Sql, items: Sequence[Prepared], published: Mapping[int, PublishKeyState]
) -> list[tuple[int, tuple[Any, ...]]]:
    """The keys that this call has stored, as rows with their owner, by the index of the item."""
    return [
        (index, (*publish.key.place(sql.shards), items[index].request.id))
        for index, known in published.items()
        if known.fresh and (publish := items[index].publish) is not None
    ]
