"""replace and rerun: a queued holder takes the new request, a running one a successor."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.model.job import JobState, state_of
from onefold.model.lifecycle import State, replacement_run_at
from onefold.model.new_job import NewJobRow
from onefold.operations.unique_keys import (
    ROUNDS,
    Stand,
    chunks_by_shard,
    id_rows,
    lock_order,
    never_settled,
    restart,
    settle,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.operations.statement import Operation, Sql


class Change(msgspec.Struct, frozen=True):
    """What a call does to the holders of its keys."""

    rerun: bool
    """True: leave a successor with a running holder. False: do not change it."""
    newest: Mapping[str, NewJobRow]
    """Later requests of the same batch, by the id of the first one."""
    max_wait: int | None = None


def change_holders(
    sql: Sql, requests: Sequence[NewJobRow], stands: dict[str, Stand], change: Change
) -> Operation[frozenset[str]]:
    """Give the newest request to its holder; returns the requests that a queued holder took.

    A holder that ended between the look-up and the lock has released its key: that request is
    tried again. Our own transactions restart for it. In a caller's transaction a key is then
    requested while rows are locked, so a deadlock remains possible there.
    """
    replaced: set[str] = set()
    pending = [request for request in requests if not stands[request.id].new]
    for _ in range(ROUNDS):
        again: list[NewJobRow] = []
        for chunk in chunks_by_shard(pending):
            again += yield from _change(sql, chunk, stands, replaced, change)
        if again:
            restart(sql, requests)
            stands.update((yield from settle(sql, again)))
        pending = [request for request in again if not stands[request.id].new]
        if not pending:
            return frozenset(replaced)
    raise never_settled(pending[0])


class LockedHolder(msgspec.Struct, frozen=True):
    """A row of lock_holders, in the order of its columns."""

    id: str
    state: int
    run_at: int
    not_before: int | None
    created_at: int
    unique_states: int
    unique_until: int | None
    holds: bool
    now: int
    attempt: int
    awaits: bool | None

    def state_at(self, run_at: int) -> JobState:
        """Its state, if it may run from `run_at` on."""
        return state_of(
            self.state, attempt=self.attempt, run_at=run_at, now=self.now, awaits=self.awaits
        )


REPLACE_COLUMNS: Final = ("shard", "id", "kind", "payload", "fingerprint", "priority", "run_at")


def _change(
    sql: Sql,
    requests: Sequence[NewJobRow],
    stands: dict[str, Stand],
    replaced: set[str],
    change: Change,
) -> Operation[list[NewJobRow]]:
    """One round over the holders of one shard; returns the requests to try again."""
    by_holder = {stands[request.id].id: request for request in requests}
    rows = yield sql("lock_holders", ("shard", "id"), id_rows(requests[0].shard, by_holder))
    queued: list[tuple[object, ...]] = []
    running: list[tuple[object, ...]] = []
    for holder in starmap(LockedHolder, rows):
        if not holder.holds:
            continue
        request = by_holder.pop(holder.id)
        seen = stands[request.id]
        run_at = holder.run_at
        if holder.state == State.QUEUED:
            run_at = _new_run_at(holder, request, change)
            queued.append(_replacement(holder, request, run_at))
            replaced.add(request.id)
        elif holder.state == State.RUNNING and change.rerun:
            newest = change.newest.get(request.id, request)
            running.append((request.shard, holder.id, _successor(holder, newest)))
        stands[request.id] = Stand(
            holder.id, holder.state, seen.fingerprint, new=False, state=holder.state_at(run_at)
        )
    if queued:
        yield sql("replace_jobs", REPLACE_COLUMNS, queued)
    if running:
        yield sql("set_successors", ("shard", "id", "next"), running)
    return sorted(by_holder.values(), key=lock_order)


def _new_run_at(holder: LockedHolder, request: NewJobRow, change: Change) -> int:
    wanted = _run_at(holder, request)
    return replacement_run_at(
        # A rerun never postpones a job that waits already.
        wanted=min(wanted, holder.run_at) if change.rerun else wanted,
        created_at=holder.created_at,
        not_before=holder.not_before,
        max_wait=change.max_wait,
    )


def _replacement(holder: LockedHolder, request: NewJobRow, run_at: int) -> tuple[object, ...]:
    content = (request.kind, request.payload, request.fingerprint, request.priority)
    return (request.shard, holder.id, *content, run_at)


def _run_at(holder: LockedHolder, request: NewJobRow) -> int:
    """When the new request wants to run; its delay counts from now."""
    return holder.now + request.delay if request.run_at is None else request.run_at


def _successor(holder: LockedHolder, request: NewJobRow) -> str:
    """The successor; its delay counts from the request, not from the holder's end.

    The successor keeps what the holder has promised about the key: the later end and the wider
    scope of the two.
    """
    successor = msgspec.structs.replace(
        request,
        run_at=_run_at(holder, request),
        unique_states=request.unique_states | holder.unique_states,
        unique_until=holder.unique_until,
    )
    return msgspec.json.encode(successor).decode()
