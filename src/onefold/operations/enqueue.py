"""Enqueue: store jobs, or find the jobs that already stand for the requests.

The order is always the same: publish keys, then unique keys (sorted), then the rows of holders that
are to be changed (sorted). The database decides each key by its constraint; a look-up only follows
an insert that was refused, to say by whom.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import (
    AlreadyEnqueued,
    ConflictingOptions,
    DatabaseBusy,
    InvalidInput,
    KeyReused,
)
from onefold.model.identity import shard_of
from onefold.model.job import STATE_WORDS, Enqueued, OnDuplicate, OnMismatch
from onefold.model.lifecycle import Standing, State, replacement_run_at
from onefold.model.moment import span
from onefold.model.request import INSERT_COLUMNS, Prepared, Request, placed
from onefold.operations.publish import claim_publish_keys, forget_publish_keys, point_publish_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onefold.operations.publish import Published
    from onefold.operations.statement import Operation, Sql

ROUNDS: Final = 8
"""A key that changes hands so often while we look is somebody's busy loop, not bad luck."""

CHUNK: Final = 2_000
"""Rows per statement: large enough to forget the round trip, small enough to stay in memory."""


class Policy(msgspec.Struct, frozen=True):
    """What a call wants done about duplicates."""

    on_duplicate: OnDuplicate = "keep"
    on_mismatch: OnMismatch = "flag"
    max_wait: int | None = None


def policy(
    on_duplicate: OnDuplicate = "keep",
    on_mismatch: OnMismatch = "flag",
    max_wait: timedelta | None = None,
) -> Policy:
    """Check the options of a call."""
    if on_duplicate not in {"keep", "raise", "replace", "rerun"}:
        raise InvalidInput(
            "on_duplicate", f"must be keep, raise, replace or rerun, got {on_duplicate!r}"
        )
    if on_mismatch not in {"flag", "raise"}:
        raise InvalidInput("on_mismatch", f"must be flag or raise, got {on_mismatch!r}")
    if on_mismatch == "raise" and on_duplicate in {"replace", "rerun"}:
        raise ConflictingOptions(
            "on_mismatch", f'"raise" contradicts on_duplicate={on_duplicate!r}: it wants the change'
        )
    if max_wait is not None and on_duplicate != "replace":
        raise ConflictingOptions("max_wait", 'needs on_duplicate="replace"')
    return Policy(
        on_duplicate, on_mismatch, None if max_wait is None else span(max_wait, "max_wait")
    )


class Stand(msgspec.Struct, frozen=True):
    """The job that stands for a request after the keys are settled."""

    id: str
    state: int = State.QUEUED
    fingerprint: str | None = None
    new: bool = True


def enqueue(sql: Sql, items: Sequence[Prepared], policy: Policy) -> Operation[list[Enqueued]]:
    """Store the jobs that are new, and answer for each item, in order.

    All or nothing: with `raise`, what this call has written is taken back before the error leaves,
    since a caller may catch it and commit.
    """
    items = placed(items, sql.shards)
    published = yield from claim_publish_keys(sql, items, rounds=ROUNDS)
    batch = _Batch(items, published, policy)
    try:
        stands = yield from settle(sql, batch.requests)
        answers = batch.answers(stands)
    except (AlreadyEnqueued, KeyReused):
        yield from _take_back(sql, batch)
        raise
    if policy.on_duplicate in {"replace", "rerun"}:
        stands, replaced = yield from _change_holders(sql, batch, stands)
        answers = batch.answers(stands, replaced)
    yield from point_publish_keys(sql, items, published, [answer.id for answer in answers])
    yield from _log_duplicates(sql, items, answers)
    return answers


class _Batch:
    """The items of one call, with the duplicates among themselves folded into their first."""

    def __init__(
        self, items: Sequence[Prepared], published: dict[int, Published], policy: Policy
    ) -> None:
        self.items = items
        self.published = published
        self.policy = policy
        self.leaders: list[int] = []
        """For each item, the item whose request is stored for it."""
        self._requests: dict[int, Request] = {}
        self._fold()

    def _fold(self) -> None:
        seen: dict[object, int] = {}
        for index, item in enumerate(self.items):
            self.leaders.append(index)
            known = self.published.get(index)
            if known is not None and not known.fresh:
                if known.leader is not None:
                    self.leaders[index] = self.leaders[known.leader]
                continue
            unique = item.request.unique
            leader = index if unique is None else seen.setdefault(unique, index)
            self.leaders[index] = leader
            if leader == index:
                self._requests[index] = item.request
            elif self.policy.on_duplicate in {"replace", "rerun"}:
                self._requests[leader] = _with_content(self._requests[leader], item.request)

    @property
    def requests(self) -> list[Request]:
        """What is to be inserted, in lock order: by unique key, the others as they came."""
        return sorted(self._requests.values(), key=_lock_order)

    def answers(
        self, stands: dict[str, Stand], replaced: frozenset[str] = frozenset()
    ) -> list[Enqueued]:
        """The answer for each item; raises where the policy says so."""
        return [self._answer(index, stands, replaced) for index in range(len(self.items))]

    def _answer(self, index: int, stands: dict[str, Stand], replaced: frozenset[str]) -> Enqueued:
        known = self.published.get(index)
        if known is not None and not known.fresh and known.leader is None:
            return self._remembered(index, known)
        request = self._requests[self.leaders[index]]
        stand = stands[request.id]
        if known is not None and known.leader is not None:
            return self._same_publish(index, known, stand)
        follows = self.leaders[index] != index
        if stand.new and not follows:
            return Enqueued(stand.id, state=STATE_WORDS[stand.state])

        self._refuse_duplicate(index, stand)
        changed = request.id in replaced or (stand.new and self._takes_newest)
        # A rerun's request is accepted even where it waits behind a running holder.
        accepted = changed or self.policy.on_duplicate == "rerun"
        mine = self.items[index].request.fingerprint
        theirs = request.fingerprint if stand.new else stand.fingerprint
        return Enqueued(
            stand.id,
            duplicate=True,
            state=STATE_WORDS[stand.state],
            mismatch=self._mismatch(index, mine != theirs and not accepted, stand.id),
            replaced=changed,
        )

    @property
    def _takes_newest(self) -> bool:
        return self.policy.on_duplicate in {"replace", "rerun"}

    def _remembered(self, index: int, known: Published) -> Enqueued:
        """The publish key is known from before: the job it stands for, whatever became of it."""
        return Enqueued(
            known.job_id,
            duplicate=known.job_id != self.items[index].request.id,
            state=None if known.state is None else STATE_WORDS[known.state],
            mismatch=self._mismatch(index, known.mismatch, known.job_id),
        )

    def _same_publish(self, index: int, known: Published, stand: Stand) -> Enqueued:
        """The publish key came earlier in this very call."""
        return Enqueued(
            stand.id,
            duplicate=True,
            state=STATE_WORDS[stand.state],
            mismatch=self._mismatch(index, known.mismatch, stand.id),
        )

    def _refuse_duplicate(self, index: int, stand: Stand) -> None:
        if self.policy.on_duplicate == "raise":
            raise AlreadyEnqueued(
                key=self.items[index].request.unique_key or "",
                holder_id=stand.id,
                state=STATE_WORDS[stand.state],
                item=index,
            )

    def _mismatch(self, index: int, mismatch: bool, holder_id: str) -> bool:  # noqa: FBT001
        if mismatch and self.policy.on_mismatch == "raise":
            item = self.items[index]
            known = self.published.get(index)
            by_publish = item.publish is not None and known is not None and not known.fresh
            key = item.publish.key.key if by_publish and item.publish else item.request.unique_key
            raise KeyReused(key=key or "", holder_id=holder_id, item=index)
        return mismatch


def _lock_order(request: Request) -> tuple[int, str, str, str, str]:
    shard, tenant, kind, key = request.unique or (request.shard, "", "", "")
    return (shard, tenant, kind, key, request.id if request.unique is None else "")


def _with_content(request: Request, newer: Request) -> Request:
    """The newer request under the older one's id, scope and queue."""
    return msgspec.structs.replace(
        request,
        kind=newer.kind,
        payload=newer.payload,
        fingerprint=newer.fingerprint,
        priority=newer.priority,
        run_at=newer.run_at,
        delay=newer.delay,
    )


def chunks_by_shard(requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
    """Runs of one shard, in order, none longer than a statement should be."""
    start = 0
    for end in range(1, len(requests) + 1):
        full = end - start == CHUNK
        if end == len(requests) or full or requests[end].shard != requests[start].shard:
            yield requests[start:end]
            start = end


def settle(sql: Sql, requests: Sequence[Request]) -> Operation[dict[str, Stand]]:
    """Insert what can be inserted and find who holds the rest, until each request has its job."""
    stands: dict[str, Stand] = {}
    pending = list(requests)
    for _ in range(ROUNDS):
        yield from insert(sql, pending, stands)
        pending = [request for request in pending if request.id not in stands]
        if not pending:
            return stands
        yield from _find(sql, pending, stands)
        pending = [request for request in pending if request.id not in stands]
        if not pending:
            return stands
    raise DatabaseBusy(
        f"the key {pending[0].unique_key!r} changed hands {ROUNDS} times while we looked",
        waited=timedelta(0),
    )


def insert(sql: Sql, requests: Sequence[Request], stands: dict[str, Stand]) -> Operation[None]:
    """Insert in lock order; `stands` gets those that went in."""
    for chunk in chunks_by_shard(requests):
        rows = yield sql("insert_jobs", INSERT_COLUMNS, [request.row for request in chunk])
        for (job_id,) in rows:
            stands[job_id] = Stand(job_id)


FIND_COLUMNS: Final = ("id", "shard", "tenant", "unique_kind", "unique_key")


def _find(sql: Sql, requests: Sequence[Request], stands: dict[str, Stand]) -> Operation[None]:
    """Who is in the way: the holder, or the job itself where an answer was lost before."""
    for chunk in chunks_by_shard(requests):
        rows = yield sql(
            "find_holders",
            FIND_COLUMNS,
            [(r.id, r.shard, r.tenant, r.unique_kind, r.unique_key) for r in chunk],
        )
        lapsed: set[str] = set()
        at = 0
        for request_id, holder_id, state, fingerprint, now, is_lapsed in rows:
            if is_lapsed and holder_id != request_id:
                lapsed.add(holder_id)
                at = now
            else:
                stands[request_id] = Stand(
                    holder_id, state, fingerprint, new=holder_id == request_id
                )
        if lapsed:
            shard = chunk[0].shard
            yield sql("release_holders", ("shard", "id"), _rows(shard, lapsed), at=at)


def _rows(shard: int, ids: Iterable[str]) -> list[tuple[int, str]]:
    return [(shard, job_id) for job_id in sorted(ids)]


def _change_holders(
    sql: Sql, batch: _Batch, stands: dict[str, Stand]
) -> Operation[tuple[dict[str, Stand], frozenset[str]]]:
    """Hand the newest request to holders: into a queued one, behind a running one (`rerun`).

    A holder that ended between the find and the lock has given its key up: that request goes round
    again. Only there is a key asked for while rows are locked, which is why a deadlock remains
    possible, and why our own transactions retry one.
    """
    replaced: set[str] = set()
    pending = [request for request in batch.requests if not stands[request.id].new]
    for _ in range(ROUNDS):
        again = yield from _change(sql, batch.policy, pending, stands, replaced)
        if not again:
            return stands, frozenset(replaced)
        for request in again:
            del stands[request.id]
        stands.update((yield from settle(sql, again)))
        pending = [request for request in again if not stands[request.id].new]
    raise DatabaseBusy(
        f"the key {pending[0].unique_key!r} changed hands {ROUNDS} times while we looked",
        waited=timedelta(0),
    )


def _change(
    sql: Sql,
    policy: Policy,
    requests: Sequence[Request],
    stands: dict[str, Stand],
    replaced: set[str],
) -> Operation[list[Request]]:
    """One round over the holders of these requests; answers with those to settle again."""
    by_holder = {stands[request.id].id: request for request in requests}
    again: list[Request] = []
    for chunk in chunks_by_shard(requests):
        shard = chunk[0].shard
        holders = {stands[request.id].id for request in chunk}
        rows = yield sql("lock_holders", ("shard", "id"), _rows(shard, holders))
        queued: list[tuple[object, ...]] = []
        running: list[tuple[int, str, str]] = []
        for job_id, state, attempt, max_attempts, run_at, created_at, holds, now in rows:
            request = by_holder[job_id]
            holders.discard(job_id)
            standing = Standing(State(state), attempt, max_attempts, run_at=run_at)
            stands[request.id] = Stand(job_id, state, stands[request.id].fingerprint, new=False)
            if state == State.QUEUED and holds:
                queued.append(
                    _replacement(shard, job_id, request, standing, created_at, now, policy)
                )
                replaced.add(request.id)
            elif state == State.RUNNING and holds:
                if policy.on_duplicate == "rerun":
                    running.append((shard, job_id, _successor(request, now)))
            elif not holds:
                again.append(request)
        again += [by_holder[job_id] for job_id in holders]
        if queued:
            yield sql("replace_jobs", REPLACE_COLUMNS, queued)
        if running:
            yield sql("set_successors", ("shard", "id", "next"), running)
    return again


REPLACE_COLUMNS: Final = ("shard", "id", "kind", "payload", "fingerprint", "priority", "run_at")


def _replacement(  # noqa: PLR0913 - one row, spelled out
    shard: int,
    job_id: str,
    request: Request,
    standing: Standing,
    created_at: int,
    now: int,
    policy: Policy,
) -> tuple[object, ...]:
    wanted = now + request.delay if request.run_at is None else request.run_at
    run_at = replacement_run_at(
        standing,
        # A rerun is a trigger, not a debounce: it never postpones what is waiting already.
        wanted=min(wanted, standing.run_at) if policy.on_duplicate == "rerun" else wanted,
        created_at=created_at,
        max_wait=policy.max_wait,
    )
    return (
        shard, job_id, request.kind, request.payload, request.fingerprint, request.priority, run_at
    )  # fmt: skip


_request_decoder = msgspec.json.Decoder(Request)


def _successor(request: Request, now: int) -> str:
    """The whole request, its delay counted from the trigger and not from the holder's end."""
    run_at = now + request.delay if request.run_at is None else request.run_at
    return msgspec.json.encode(msgspec.structs.replace(request, run_at=run_at)).decode()


def insert_successors(sql: Sql, waiting: Sequence[str]) -> Operation[None]:
    """The holders have ended: what waited on them becomes jobs, in the same transaction.

    One whose key somebody newer has got meanwhile is covered by that job and needs no row.
    """
    requests = sorted((_request_decoder.decode(text) for text in waiting), key=_lock_order)
    yield from insert(sql, requests, {})


def _take_back(sql: Sql, batch: _Batch) -> Operation[None]:
    """Remove what this call has stored, and nothing else: the ids are our own."""
    for chunk in chunks_by_shard(batch.requests):
        yield sql("delete_jobs", ("shard", "id"), [(r.shard, r.id) for r in chunk])
    yield from forget_publish_keys(sql, batch.items, batch.published)


def _log_duplicates(
    sql: Sql, items: Sequence[Prepared], answers: Sequence[Enqueued]
) -> Operation[None]:
    rows = [
        (shard_of(answer.id, sql.shards), answer.id, item.request_id)
        for item, answer in zip(items, answers, strict=True)
        if answer.duplicate
    ]
    if rows:
        yield sql("log_duplicates", ("shard", "job_id", "request_id"), sorted(rows, key=_by_shard))


def _by_shard(row: tuple[int, str, str | None]) -> int:
    return row[0]
