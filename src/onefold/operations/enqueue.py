"""Insert jobs, or find the jobs that hold their keys.

The order is always the same: publish keys, then unique keys (sorted), then the rows of holders
that are changed (sorted).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, get_args

import msgspec

from onefold.errors import AlreadyEnqueued, ConflictingOptions, InvalidInput, KeyReused
from onefold.model.job import Enqueued, JobState, OnDuplicate, OnMismatch
from onefold.model.lifecycle import State
from onefold.model.new_job import NewJobRow, Prepared, placed
from onefold.model.timestamps import span
from onefold.operations.api_keys import confirm
from onefold.operations.duplicate_notes import note, notes_of
from onefold.operations.on_duplicate import Change, change_holders
from onefold.operations.publish_keys import (
    PublishKeyState,
    claim_publish_keys,
    forget_publish_keys,
    point_publish_keys,
    publish_at_once,
    publish_one,
)
from onefold.operations.statement import overlapped
from onefold.operations.unique_keys import (
    CHUNK_CHARACTERS,
    ROUNDS,
    NeverSettled,
    Restart,
    Stand,
    chunks_by_shard,
    in_lock_order,
    insert_or_find,
    is_one_chunk,
    key_order,
    settle,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from onefold.model.new_job import Parts
    from onefold.operations.statement import Operation, Sql

# Tuples: a value that is not hashable must be rejected, not crash.
ON_DUPLICATE: Final = get_args(OnDuplicate)
ON_MISMATCH: Final = get_args(OnMismatch)


class DuplicatePolicy(msgspec.Struct, frozen=True):
    """What a call does with duplicates."""

    on_duplicate: OnDuplicate = "keep"
    on_mismatch: OnMismatch = "flag"
    max_wait: int | None = None

    @property
    def takes_newest(self) -> bool:
        """Whether a later request replaces an earlier one, or the holder."""
        return self.on_duplicate in {"replace", "rerun"}


KEEP_HOLDER: Final = DuplicatePolicy()
"""The default."""


def policy(
    on_duplicate: OnDuplicate = "keep",
    on_mismatch: OnMismatch = "flag",
    max_wait: timedelta | None = None,
) -> DuplicatePolicy:
    """Check the options of a call."""
    if on_duplicate not in ON_DUPLICATE:
        raise InvalidInput(
            "on_duplicate", f"must be keep, raise, replace or rerun, got {on_duplicate!r}"
        )
    if on_mismatch not in ON_MISMATCH:
        raise InvalidInput("on_mismatch", f"must be flag or raise, got {on_mismatch!r}")
    if on_mismatch == "raise" and on_duplicate in {"replace", "rerun"}:
        raise ConflictingOptions(
            "on_mismatch", f'"raise" contradicts on_duplicate={on_duplicate!r}: it wants the change'
        )
    if max_wait is not None and on_duplicate != "replace":
        raise ConflictingOptions("max_wait", 'needs on_duplicate="replace"')
    return DuplicatePolicy(
        on_duplicate, on_mismatch, None if max_wait is None else span(max_wait, "max_wait")
    )


def enqueue(
    sql: Sql,
    items: Sequence[Prepared],
    policy: DuplicatePolicy,
    *,
    singly: bool = False,
    notes: bool = True,
) -> Operation[list[Enqueued]]:
    """Insert the jobs that are new; returns a result for each item, in order.

    All or nothing: an error of ours removes what this call has inserted, since a caller may catch
    it and commit. The error names the item, unless each item is a call of its own (`singly`).
    Without `notes` the caller notes the duplicates, after the commit.
    """
    if sql.shards > 1:
        items = placed(items, sql.shards)
    tried = len(items) == 1 and items[0].publish is None
    stand: Stand | None = None
    if tried:  # most calls end here
        stand = yield from insert_or_find(sql, items[0].request)
        if stand is not None and stand.new:
            return [Enqueued(stand.id, state=items[0].state)]
        if stand is not None and not policy.takes_newest:
            # Nothing was stored, so there is nothing to take back.
            batch = _Batch(items, {}, policy, singly=singly)
            answers = batch.answers({items[0].request.id: stand})
            if notes:
                yield from note(sql, notes_of(items, answers))
            return answers
    published: dict[int, PublishKeyState] = {}
    try:
        yield from claim_publish_keys(sql, items, published, rounds=ROUNDS)
        answers = yield from _answer(
            sql, _Batch(items, published, policy, singly=singly), stand, tried=tried
        )
    except (AlreadyEnqueued, KeyReused, NeverSettled):
        yield from _take_back(sql, items, published)
        raise
    yield from point_publish_keys(sql, items, published, [answer.id for answer in answers])
    if notes:
        yield from note(sql, notes_of(items, answers))
    return answers


LARGE_PART: Final = CHUNK_CHARACTERS // 4
"""Characters of the payloads of a first part. The last part has up to three times as many jobs."""


def enqueue_parts(sql: Sql, parts: Parts) -> Operation[list[Enqueued]]:
    """`enqueue` for a large batch, without notes: a part is stored while the next is prepared.

    A part that meets a rival restarts the transaction, which then inserts all jobs at once.
    """
    first = parts[0]
    is_small = sum([len(item.request.payload) for item in first]) <= LARGE_PART
    splits = sql.stores_without_looking and sql.shards == 1
    if not (splits and is_small and _is_one_statement(first)):
        return (yield from enqueue(sql, parts.items, KEEP_HOLDER, notes=False))

    def store(index: int) -> Operation[list[Enqueued]]:
        if not _is_one_statement(parts[index]):
            raise Restart
        return enqueue(sql, parts[index], KEEP_HOLDER, notes=False)

    stored = yield from overlapped([partial(store, index) for index in range(len(parts))])
    return parts.in_given_order(stored)


def _is_one_statement(part: Sequence[Prepared]) -> bool:
    """Whether a part needs one statement: a second one would lock its keys out of order.

    A part of one key, in which all jobs are merged, is stored in another way.
    """
    rows = [item.request for item in part]
    key = rows[0].unique_key
    return is_one_chunk(rows) and (key is None or key != rows[-1].unique_key)


def publish(
    sql: Sql, items: Sequence[Prepared], policy: DuplicatePolicy
) -> Operation[list[Enqueued]]:
    """`enqueue` for independent calls with publish keys or API keys, without notes.

    One statement stores keys and jobs together, if their API keys are valid, and commits by itself.
    The items that it does not answer need more statements.
    """
    found: dict[str, Enqueued] = {}
    if policy == KEEP_HOLDER and sql.stores_without_looking and sql.shards == 1:
        keyed = [item for item in items if item.publish is not None]
        if len(items) == 1 and keyed and items[0].api_key is None:
            answer = yield from publish_one(sql, items[0])
            if answer is not None:
                return [answer]
        elif keyed and all(item.request.unique_key is None for item in keyed):
            found = yield from publish_at_once(sql, keyed)
    rest = [item for item in items if item.request.id not in found]
    if rest:
        yield from confirm(sql, [item.api_key for item in rest if item.api_key is not None])
        answers = yield from enqueue(sql, rest, policy, singly=True, notes=False)
        found |= {item.request.id: answer for item, answer in zip(rest, answers, strict=True)}
    return [found[item.request.id] for item in items]


def _answer(
    sql: Sql, batch: _Batch, stand: Stand | None, *, tried: bool
) -> Operation[list[Enqueued]]:
    """The results; `stand` is the holder of a lone request, if it was found already."""
    policy, requests = batch.policy, batch.requests
    if stand is None:
        # With a duplicate inside the batch, or a publish key, there is more to store or to remove.
        alone = len(requests) == len(batch.items) and not batch.published
        stands = yield from settle(sql, requests, alone=alone, tried=tried)
    else:
        stands = {requests[0].id: stand}
    if not policy.takes_newest:
        return batch.answers(stands)
    change = Change(policy.on_duplicate == "rerun", batch.newest, policy.max_wait)
    replaced = yield from change_holders(sql, requests, stands, change)
    return batch.answers(stands, replaced)


class _Batch:
    """The items of one call; duplicates among them are merged into the first."""

    def __init__(
        self,
        items: Sequence[Prepared],
        published: dict[int, PublishKeyState],
        policy: DuplicatePolicy,
        *,
        singly: bool,
    ) -> None:
        self.items = items
        self._singly = singly
        self.published = published
        self.policy = policy
        self.leaders: list[int] = []
        """For each item, the item whose request is stored."""
        self._requests: dict[int, NewJobRow] = {}
        self._states: dict[int, JobState] = {}
        """The states of inserted requests that took the content of a later one."""
        self.newest: dict[str, NewJobRow] = {}
        """The last request for a stored one, by the id of the stored one."""
        self._fold()

    def _fold(self) -> None:
        seen: dict[object, int] = {}
        leaders, requests = self.leaders, self._requests
        for index, item in enumerate(self.items):
            leaders.append(index)
            if self.published:
                known = self.published.get(index)
                if known is not None and not known.fresh:
                    if known.leader is not None:
                        leaders[index] = leaders[known.leader]
                    continue
            request = item.request
            if request.unique_key is not None:
                leader = seen.setdefault(key_order(request), index)
                if leader != index:
                    leaders[index] = leader
                    if self.policy.takes_newest:
                        requests[leader] = _with_content(requests[leader], request)
                        self.newest[requests[leader].id] = request
                        self._states[leader] = item.state
                    continue
            requests[index] = request

    @property
    def requests(self) -> list[NewJobRow]:
        """The rows to insert, in lock order: by unique key, the others in their given order."""
        return in_lock_order(self._requests.values())

    def answers(
        self, stands: dict[str, Stand], replaced: frozenset[str] = frozenset()
    ) -> list[Enqueued]:
        """The result of each item; raises if the policy demands it."""
        if self.policy == KEEP_HOLDER and not self.published:
            return self._kept(stands)
        return [self._answer(index, stands, replaced) for index in range(len(self.items))]

    def _kept(self, stands: dict[str, Stand]) -> list[Enqueued]:
        """`_answer` for most batches, in half of the time: nothing is raised or changed."""
        found: list[Enqueued] = []
        for item, leader in zip(self.items, self.leaders, strict=True):
            request = self._requests[leader]
            stand = stands[request.id]
            state = stand.state or self.items[leader].state
            if stand.new and request is item.request:
                found.append(Enqueued(stand.id, state=state))
                continue
            theirs = request.fingerprint if stand.new else stand.fingerprint
            mismatch = item.request.fingerprint != theirs
            found.append(Enqueued(stand.id, duplicate=True, state=state, mismatch=mismatch))
        return found

    def _answer(self, index: int, stands: dict[str, Stand], replaced: frozenset[str]) -> Enqueued:
        known = self.published.get(index)
        if known is not None and not known.fresh and known.leader is None:
            return self._remembered(index, known)
        leader = self.leaders[index]
        request = self._requests[leader]
        stand = stands[request.id]
        if known is not None and known.leader is not None:
            return self._same_publish(index, known, stand)
        if stand.new and leader == index:
            return Enqueued(stand.id, state=self._state(index, stand))

        policy = self.policy
        if policy.on_duplicate == "raise":
            raise self._refused(index, stand)
        changed = request.id in replaced or (stand.new and policy.takes_newest)
        # A rerun is accepted, too, if it waits behind a running holder.
        waits = policy.on_duplicate == "rerun" and stand.stored == State.RUNNING
        accepted = changed or waits
        mine = self.items[index].request.fingerprint
        theirs = request.fingerprint if stand.new else stand.fingerprint
        return Enqueued(
            stand.id,
            duplicate=True,
            state=stand.state or self._state(index, stand),
            mismatch=mine != theirs and not accepted and self._mismatch(index, stand.id),
            replaced=changed,
        )

    def _remembered(self, index: int, known: PublishKeyState) -> Enqueued:
        """The publish key exists: return the job that it stands for, whatever its state is."""
        return Enqueued(
            known.job_id,
            duplicate=known.job_id != self.items[index].request.id,
            state=known.state,
            mismatch=known.mismatch and self._mismatch(index, known.job_id),
        )

    def _same_publish(self, index: int, known: PublishKeyState, stand: Stand) -> Enqueued:
        """The publish key occurs earlier in this call."""
        return Enqueued(
            stand.id,
            duplicate=True,
            state=self._state(index, stand),
            mismatch=known.mismatch and self._mismatch(index, stand.id),
        )

    def _state(self, index: int, stand: Stand) -> JobState:
        leader = self.leaders[index]
        return stand.state or self._states.get(leader) or self.items[leader].state

    def _refused(self, index: int, stand: Stand) -> AlreadyEnqueued:
        return AlreadyEnqueued(
            key=self.items[index].request.unique_key or "",
            holder_id=stand.id,
            state=self._state(index, stand),
            item=self._named(index),
        )

    def _named(self, index: int) -> int | None:
        """The index of an item for its caller."""
        return None if self._singly else index

    def _mismatch(self, index: int, holder_id: str) -> bool:
        """True, or an error if the policy demands it."""
        if self.policy.on_mismatch == "raise":
            item = self.items[index]
            known = self.published.get(index)
            by_publish = item.publish is not None and known is not None and not known.fresh
            key = item.publish.key.key if by_publish and item.publish else item.request.unique_key
            raise KeyReused(key=key or "", holder_id=holder_id, item=self._named(index))
        return True


def _with_content(request: NewJobRow, newer: NewJobRow) -> NewJobRow:
    """The newer request with the id, scope and queue of the older one."""
    return msgspec.structs.replace(
        request,
        kind=newer.kind,
        payload=newer.payload,
        fingerprint=newer.fingerprint,
        priority=newer.priority,
        run_at=newer.run_at,
        delay=newer.delay,
    )


def _take_back(
    sql: Sql, items: Sequence[Prepared], published: dict[int, PublishKeyState]
) -> Operation[None]:
    """Remove what this call has inserted: the ids are its own."""
    requests = in_lock_order([item.request for item in items])
    for chunk in chunks_by_shard(requests):
        yield sql("delete_jobs", ("shard", "id"), [(r.shard, r.id) for r in chunk])
    yield from forget_publish_keys(sql, items, published)
