"""Jobs for operators: get, find, run now, replay, delete, and the duplicates of their keys."""

from __future__ import annotations

import re
from enum import Enum
from functools import cache, partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from onefold.errors import Gone, InvalidInput, JobNotFound, WrongState
from onefold.model import checks
from onefold.model.ids import (
    HIGHEST_ID,
    LOWEST_ID,
    id_range,
    milliseconds_of,
    parse_id,
    shard_of,
)
from onefold.model.job import Enqueued, Job, JobPage, JobRow
from onefold.model.lifecycle import Event, State, allows, next_step
from onefold.model.stored_key import Duplicates, Suppressed
from onefold.model.timestamps import from_micros, to_micros
from onefold.operations.attempts import Past
from onefold.operations.endings import Locked, Move, apply, remove
from onefold.operations.replay import Replayable, Rivals, rivals
from onefold.operations.statement import ids_by_shard
from onefold.operations.unique_keys import Stand, insert_successors, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onefold.model.step import Sized
    from onefold.operations.statement import Dialect, Operation, Sql, Statement

PAGE_LIMIT: Final = 10_000
RECENT_DUPLICATES: Final = 20
LOOKED: Final = 10_000
"""How many jobs one look reads: no index helps most filters."""
SCANNED: Final = 2_000
"""How many payloads one search for a text reads."""
SCANNED_AT_ONCE: Final = 200
PAGE_BYTES: Final = 4 * 1024 * 1024
"""How much text the jobs of a page have; a page has one job at least."""
READ_AT_ONCE: Final = 32
"""Jobs per statement: each may have a payload and a result of a mebibyte."""


def get(sql: Sql, tenant: str, ids: Sequence[str]) -> Operation[dict[str, Job]]:
    """Whole jobs by id, without those that are deleted or belong to another tenant."""
    jobs: dict[str, Job] = {}
    for _, wanted in ids_by_shard(sql, ids):
        rows = yield sql("get_jobs", ("shard", "id"), wanted, tenant=tenant)
        jobs.update((row[0], Job.from_row(row)) for row in rows)
    return jobs


class JobFilter(msgspec.Struct, frozen=True):
    """A filter of jobs. None matches everything."""

    states: tuple[int, ...] | None = None
    id: tuple[str, str] | None = None
    """The ids before the first and after the last."""
    queue: str | None = None
    kind: str | None = None
    unique_key: str | None = None
    reason: str | None = None
    error_type: str | None = None
    created_from: int | None = None
    created_before: int | None = None
    ended_from: int | None = None
    ended_before: int | None = None
    tag: str | None = None
    text: str | None = None
    retrying: bool | None = None
    due: bool | None = None
    awaiting: bool = False


# The stored columns behind each state.
_STATES: Final[dict[str, JobFilter]] = {
    "scheduled": JobFilter((0,), retrying=False, due=False),
    "ready": JobFilter((0,), retrying=False, due=True),
    "retrying": JobFilter((0,), retrying=True),
    "running": JobFilter((1,)),
    "awaiting": JobFilter((1,), awaiting=True),
    "completed": JobFilter((2,)),
    "dead": JobFilter((3,)),
    "cancelled": JobFilter((4,)),
}
_QUEUED: Final = ("scheduled", "ready", "retrying")
_DERIVED: Final = (*_QUEUED, "awaiting")


_CHECKS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "id": id_range,
    "queue": checks.queue,
    "kind": checks.name,
    "unique_key": checks.key,
    "reason": checks.text,
    "error_type": checks.text,
    "created_from": to_micros,
    "created_before": to_micros,
    "ended_from": to_micros,
    "ended_before": to_micros,
    "tag": checks.key,
    "text": checks.key,
}


def job_filter(state: str | Sequence[str] | None = None, **filters: Any) -> JobFilter:
    """Check a filter. Scheduled, ready and retrying can be combined with others only together."""
    words = () if state is None else (state,) if isinstance(state, str) else tuple(state)
    for word in words:
        if word not in _STATES:
            raise InvalidInput("state", f"must be one of {', '.join(_STATES)}, got {word!r}")
    given = {
        name: _CHECKS[name](value, name) for name, value in filters.items() if value is not None
    }
    return msgspec.structs.replace(_states_filter(words), **given)


def _states_filter(words: Sequence[str]) -> JobFilter:
    if not words:
        return JobFilter()
    if len(words) == 1:
        return _STATES[words[0]]
    # Together they are what is stored as queued.
    together = set(words).issuperset(_QUEUED)
    for word in words:
        if word in _DERIVED and not (together and word in _QUEUED):
            raise InvalidInput(
                "state",
                f"{word!r} cannot be combined with other states; only scheduled, ready and retrying"
                " together can",
            )
    stored = {number for word in words for number in _STATES[word].states or ()}
    return JobFilter(tuple(sorted(stored)))


def find(
    sql: Sql,
    tenant: str,
    wanted: JobFilter,
    *,
    limit: int,
    after: str | None = None,
    newest_first: bool = False,
    whole: bool = True,
) -> Operation[JobPage]:
    """A page of jobs by id, after the cursor; ids are ordered by time.

    It looks at a limited number of jobs, so a page by a filter may have few jobs or none, and a
    `next` that continues. So has a page of large jobs. Without `whole`, jobs have no payload and no
    result.
    """
    if type(limit) is not int or not 1 <= limit <= PAGE_LIMIT:
        raise InvalidInput("limit", f"must be a whole number from 1 to {PAGE_LIMIT}, got {limit!r}")
    cursor = None if after is None else parse_id(after, "after")
    whole = whole or wanted.text is not None
    look = partial(_look, sql, tenant, wanted, newest_first=newest_first, whole=whole)
    if wanted.text is None:
        return _page(*(yield from look(limit, cursor)), limit)
    sought = _inside_json(wanted.text)
    found: list[JobRow] = []
    for _ in range(SCANNED // SCANNED_AT_ONCE):
        rows, cursor = yield from look(SCANNED_AT_ONCE, cursor)
        fits = fitting(rows, SCANNED_AT_ONCE)
        found += [row for row in rows[:fits] if sought in row.payload_json.casefold()]
        if fits == len(rows):
            break
        cursor = rows[fits - 1].id
        if fitting(found, limit) < len(found) or len(found) == limit:
            break
    return _page(found, cursor, limit)


def _inside_json(text: str) -> str:
    """A text as it is inside of a string in JSON, to compare without case."""
    return msgspec.json.encode(text)[1:-1].decode().casefold()


def _page(rows: Sequence[JobRow], end: str | None, limit: int) -> JobPage:
    """The page of the first rows of a look, which has ended at a job, or at the last one."""
    fits = fitting(rows, limit)
    jobs = tuple(row.job() for row in rows[:fits])
    if fits < len(rows):
        return JobPage(jobs, jobs[-1].id)
    if end is None or fits == limit:
        return JobPage(jobs, end)
    return JobPage(jobs, end, looked_to=from_micros(milliseconds_of(end) * 1000))


def fitting(rows: Sequence[Sized], limit: int) -> int:
    """How many of the rows a page has."""
    room = PAGE_BYTES
    for count, row in enumerate(rows[:limit]):
        room -= row.size
        if room < 0 and count:
            return count
    return min(limit, len(rows))


def _look(
    sql: Sql,
    tenant: str,
    wanted: JobFilter,
    limit: int,
    cursor: str | None,
    *,
    newest_first: bool,
    whole: bool,
) -> Operation[tuple[list[JobRow], str | None]]:
    """The rows of a page, one more if there are more, and the job at which the look has ended."""
    given = _range(wanted, cursor, newest_first=newest_first)
    given |= {**_filter_parameters(wanted), "tenant": tenant, "whole": whole}
    index = _index_for(tenant, wanted)
    along = partial(_along, dialect=sql.dialect, index=index, newest_first=newest_first)
    most = max(limit, LOOKED // len(sql.visited))
    rows: list[JobRow] = []
    ends: list[str] = []
    for shard in sql.visited:
        place: dict[str, Any] = {**given, "shard": shard}
        end = yield from _end(sql, along, index, place, most)
        if end is not None:
            ends.append(end)
            place |= _up_to(end, newest_first=newest_first)
        rows += yield from _read(sql, along, place, limit + 1, newest_first=newest_first)
        rows.sort(key=lambda row: row.id, reverse=newest_first)
        del rows[fitting(rows, limit) + 1 :]
    # Beyond the first of the ends, only some of the shards were looked at.
    end = (max if newest_first else min)(ends, default=None)
    if end is not None:
        rows = [row for row in rows if (row.id >= end if newest_first else row.id <= end)]
    return rows, end


def _read(
    sql: Sql,
    along: Callable[[Statement], Statement],
    place: dict[str, Any],
    limit: int,
    *,
    newest_first: bool,
) -> Operation[list[JobRow]]:
    """The jobs of a shard, until they are too many or too large for a page."""
    rows: list[JobRow] = []
    room = PAGE_BYTES
    while room >= 0 and (wanted := min(READ_AT_ONCE, limit - len(rows))):
        found = yield along(sql("find_jobs", **place, limit=wanted))
        rows += starmap(JobRow, found)
        if len(found) < wanted:
            break
        room -= sum(row.size for row in rows[-wanted:])
        place["before" if newest_first else "after"] = rows[-1].id
    return rows


def _range(wanted: JobFilter, cursor: str | None, *, newest_first: bool) -> dict[str, Any]:
    """The ids between which a look reads."""
    after, before = wanted.id or (LOWEST_ID, HIGHEST_ID)
    if cursor is not None and newest_first:
        before = min(before, cursor)
    elif cursor is not None:
        after = max(after, cursor)
    return {"after": after, "before": before}


def _up_to(end: str, *, newest_first: bool) -> dict[str, str]:
    below, above = id_range(end)
    return {"after": below} if newest_first else {"before": above}


def _end(
    sql: Sql,
    along: Callable[[Statement], Statement],
    index: _Index,
    place: Mapping[str, Any],
    most: int,
) -> Operation[str | None]:
    """The job at which a look at so many jobs of a shard ends; None: at the last one."""
    if index is _Index.RUNNING:
        return None
    names = {"shard", "after", "before"}
    if index is not _Index.ALL:
        names.add("tenant")
    if index is _Index.KEY:
        names.add("unique_key")
    wanted: dict[str, Any] = {name: place[name] for name in names}
    passed = yield replace(along(sql("end_look", **wanted, looked=most)), in_order=True)
    return passed[0][0] if len(passed) > 1 else None


class _Index(Enum):
    """The index that a look goes along: its condition, which a statement must have as it is."""

    ALL = ""
    TENANT = "j.tenant <> ''"
    DEAD = "j.state = 3 and not j.stripped"
    RETRYING = "j.state = 0 and j.attempt > 0"
    RUNNING = "j.state = 1"
    KEY = (
        "j.unique_key is not null"
        " and (j.yielded or (j.unique_until is null and (j.unique_states >> j.state) & 1 = 0))"
    )


_HOLDS: Final = (
    "j.unique_key is not null and not j.yielded"
    " and (j.unique_until is not null or (j.unique_states >> j.state) & 1 = 1)"
)
"""The condition of the unique index, which has the jobs with a key that `_Index.KEY` has not."""
_TABLE: Final = re.compile(r"(\S+) as j\n")
_BY_ID: Final = re.compile(r"j\.id ([<>]) (\S+)")
_ORDER: Final = re.compile(r"order by .*")


def _index_for(tenant: str, wanted: JobFilter) -> _Index:
    if wanted.unique_key is not None:
        return _Index.KEY
    if wanted.states == (State.RUNNING.value,):
        return _Index.RUNNING
    if wanted.states == (State.DEAD.value,):
        return _Index.DEAD
    if wanted.retrying:
        return _Index.RETRYING
    return _Index.TENANT if tenant else _Index.ALL


def _along(
    statement: Statement, dialect: Dialect, index: _Index, *, newest_first: bool
) -> Statement:
    finds = statement.name == "find_jobs"
    text = _text_along(statement.text, dialect, index, finds=finds, newest_first=newest_first)
    return replace(statement, text=text)


@cache
def _text_along(
    text: str, dialect: Dialect, index: _Index, *, finds: bool, newest_first: bool
) -> str:
    cast = "::text" if dialect == "postgres" else ""
    head, where, tail = text.partition("where\n")
    order = ["j.id"]
    if index is _Index.RUNNING:
        # Few, in an index with another order: sorted, none but them is read.
        order = ["j.id::text" if cast else "+j.id"]
        tail = tail.replace("j.id", order[0]).replace("::text::uuid", "::text")
    elif index is not _Index.ALL:
        # The tenant is a part of the order. With a tenant that is fixed, the primary key has the
        # same order, and the plan might be to read all of it.
        order = ["j.tenant", "j.id"]
        tail = tail.replace(f"and j.tenant = :tenant{cast}\n", "")
        tail = _BY_ID.sub(rf"(j.tenant, j.id) \1 (:tenant{cast}, \2)", tail)
    if index is _Index.KEY:
        tail = f"j.unique_key = :unique_key{cast} and {tail}"
    if index is _Index.KEY and finds:
        head = _TABLE.sub(
            rf"(select * from \1 as j where {index.value} union all"  # noqa: S608 - ours
            rf" select * from \1 as j where {_HOLDS}) as j\n",
            head,
        )
    elif index is not _Index.ALL:
        tail = f"{index.value} and {tail}"
    by = ", ".join(f"{column} desc" if newest_first else column for column in order)
    return head + where + _ORDER.sub(f"order by {by}", tail)


def _filter_parameters(wanted: JobFilter) -> dict[str, Any]:
    parameters = msgspec.structs.asdict(wanted)
    del parameters["text"], parameters["id"]
    states = parameters["states"]
    return {**parameters, "states": None if states is None else list(states)}


def delete(
    sql: Sql, tenant: str, ids: Sequence[str], *, seen: Mapping[str, Job] | None = None
) -> Operation[set[str]]:
    """Remove jobs in any state, and free their keys.

    Jobs that were `seen` are removed only if they have not changed: a dead job that was replayed
    meanwhile stays. A successor that waits for a running job is a request of its own, and is
    stored.
    """
    deleted: set[str] = set()
    for shard, wanted in ids_by_shard(sql, ids):
        rows = yield sql("lock_deliveries", ("shard", "id"), wanted, tenant=tenant)
        locked = [Locked(*row) for row in rows]
        if seen is not None:
            locked = [row for row in locked if _stands_as(row, seen[row.id])]
        yield from remove(sql, shard, [row.id for row in locked], keep=set())
        if waiting := [row.next for row in locked if row.next is not None]:
            yield from insert_successors(sql, waiting)
        deleted.update(row.id for row in locked)
    return deleted


def _stands_as(row: Locked, job: Job) -> bool:
    ended_at = None if row.ended_at is None else from_micros(row.ended_at)
    return (row.word, row.fence, ended_at) == (job.state, job.fence, job.ended_at)


def run_now(sql: Sql, tenant: str, ids: Sequence[str]) -> Operation[set[str]]:
    """Make scheduled and retrying jobs due; returns those that were not due before.

    A job that has ended raises, and so does one that is not there.
    """
    seen: set[str] = set()
    moved: set[str] = set()
    for shard, wanted in ids_by_shard(sql, ids):
        rows = yield sql("lock_deliveries", ("shard", "id"), wanted, tenant=tenant)
        moves: list[Move] = []
        for locked in starmap(Locked, rows):
            if locked.stripped:
                raise Gone(locked.id)
            if State(locked.state).is_final:
                wanted_state = "a job that has not ended; replay runs an ended one again"
                raise WrongState(locked.id, state=locked.word, wanted=wanted_state)
            if allows(State(locked.state), Event.RUN_NOW) and locked.run_at > locked.now:
                moves.append(_due(locked))
            seen.add(locked.id)
        yield from apply(sql, shard, moves)
        moved.update(move.id for move in moves)
    if missing := set(ids) - seen:
        raise JobNotFound(min(missing))
    return moved


def _due(locked: Locked) -> Move:
    step = next_step(locked.standing, Event.RUN_NOW, now=locked.now)
    # A late ack still counts.
    late = locked.awaiting
    return Move(locked.id, step, locked.now, keep=0, queue=locked.queue, awaiting=late)


def replay(
    sql: Sql, tenant: str, ids: Sequence[str], *, fresh: bool = False, strict: bool = True
) -> Operation[list[Enqueued]]:
    """Queue ended jobs again, as if one after the other, in the order of `ids`.

    A job whose key is held by a newer one stays ended, and the result names that holder. A job
    that is queued or running already is its own duplicate. With `strict`, a job that cannot be
    replayed raises; otherwise it is left out of the result.
    """
    found: dict[str, Replayable] = {}
    for _, rows_wanted in ids_by_shard(sql, ids):
        rows = yield sql("find_replayable", ("shard", "id"), rows_wanted, tenant=tenant)
        found.update((row[0], Replayable(*row)) for row in rows)
    event = Event.REPLAY_FRESH if fresh else Event.REPLAY
    if strict:
        _check_replayable(ids, found, event)

    present = [job for i in ids if (job := found.get(i)) is not None and not job.stripped]
    answers = yield from _replay(sql, present, event)
    for job in present:
        if job.id not in answers and not State(job.state).is_final:
            answers[job.id] = Enqueued(job.id, duplicate=True, state=job.word)
    if strict and (gone := [job_id for job_id in ids if job_id not in answers]):
        # Pruned or deleted between the look-up and the lock.
        raise JobNotFound(gone[0])
    return [answers[job_id] for job_id in ids if job_id in answers]


def _check_replayable(ids: Sequence[str], found: dict[str, Replayable], event: Event) -> None:
    for job_id in ids:
        if (job := found.get(job_id)) is None:
            raise JobNotFound(job_id)
        if job.stripped:
            raise Gone(job_id)
        if State(job.state).is_final and not allows(State(job.state), event):
            raise WrongState(
                job_id,
                state=job.word,
                wanted="a dead or cancelled job, or fresh=True to run a completed one again",
            )


def _replay(sql: Sql, jobs: Sequence[Replayable], event: Event) -> Operation[dict[str, Enqueued]]:
    moving = [job.id for job in jobs if not job.asks and allows(State(job.state), event)]
    reserved: set[str] = set()
    answers: dict[str, Enqueued] = {}
    holders: dict[str, str] = {}
    for asking, stand in (yield from _reserve(sql, rivals(jobs, event))):
        holder_id = asking.winner.id if stand.new else stand.id
        before, holder, after = asking.around(holder_id)
        if stand.new:
            # Each job before has had the key until the next one took it.
            moving += before
            reserved.add(holder_id)
        else:
            held = Enqueued(holder_id, duplicate=True, state=stand.state)
            answers.update(dict.fromkeys(before, held))
        moving += holder
        holders.update(dict.fromkeys(after, holder_id))
    moved = yield from _move_back(sql, moving, event, reserved=reserved)
    for job_id, holder_id in holders.items():
        if holder_id in moved:
            state = moved[holder_id].state
            answers[job_id] = Enqueued(holder_id, duplicate=True, state=state)
    return answers | moved


def _reserve(sql: Sql, places: Sequence[Rivals]) -> Operation[list[tuple[Rivals, Stand]]]:
    """Reserve the keys by placeholder rows, which are deleted before the commit.

    There is no gap: other requests for the key wait for this transaction, also after the delete.
    Returns for each placeholder whether it got the key, or who holds it.
    """
    placeholders = [asking.winner.placeholder() for asking in places]
    stands = yield from settle(sql, placeholders)
    stored = [job_id for job_id, stand in stands.items() if stand.new]
    for _, rows in ids_by_shard(sql, stored):
        yield sql("delete_jobs", ("shard", "id"), rows)
    return [
        (asking, stands[placeholder.id])
        for asking, placeholder in zip(places, placeholders, strict=True)
    ]


def _move_back(
    sql: Sql, ids: Sequence[str], event: Event, *, reserved: set[str]
) -> Operation[dict[str, Enqueued]]:
    answers: dict[str, Enqueued] = {}
    for shard, wanted in ids_by_shard(sql, ids):
        rows = yield sql("lock_deliveries", ("shard", "id"), wanted, tenant=None)
        moves: list[Move] = []
        for locked in starmap(Locked, rows):
            state = State(locked.state)
            if locked.stripped:
                continue
            if allows(state, event):
                moves.append(_replayed(locked, event, reserved=locked.id in reserved))
                answers[locked.id] = Enqueued(locked.id)
            else:
                answers[locked.id] = Enqueued(locked.id, duplicate=True, state=locked.word)
        yield from apply(sql, shard, moves)
    return answers


def _replayed(locked: Locked, event: Event, *, reserved: bool) -> Move:
    step = next_step(locked.standing, event, now=locked.now)
    fresh = event is Event.REPLAY_FRESH
    return Move(
        locked.id,
        step,
        locked.now,
        keep=0,
        replayed=True,
        fresh=fresh,
        reserved=reserved,
        past=_completed(locked),
        queue=locked.queue,
    )


def _completed(locked: Locked) -> Past | None:
    """The delivery that completed the job, which the job's row no longer shows."""
    if locked.state != State.COMPLETED or locked.ended_at is None:
        return None
    return Past(
        locked.id,
        locked.fence,
        locked.attempt,
        "completed",
        locked.worker,
        locked.taken_at,
        locked.ended_at,
    )


decode_notes: Final = msgspec.json.Decoder(list[tuple[int, str | None]]).decode


def duplicates(sql: Sql, tenant: str, job_id: str) -> Operation[Duplicates]:
    """How many enqueues a job's keys have suppressed, and the last ones."""
    shard = shard_of(job_id, sql.shards)
    # Tombstones, too: they hold their keys and suppress duplicates.
    if not (yield sql("find_replayable", ("shard", "id"), [(shard, job_id)], tenant=tenant)):
        raise JobNotFound(job_id)
    return (yield from noted(sql, shard, job_id))


def noted(sql: Sql, shard: int, holder: str) -> Operation[Duplicates]:
    """The stored duplicates of a job or a claim."""
    rows = yield sql("read_duplicates", shard=shard, id=holder)
    recent: list[tuple[int, str | None]] = []
    for _, at, _, folded, request_id in rows:
        recent += [(at, request_id)] if folded is None else decode_notes(folded)
    recent = sorted(recent, key=lambda note: note[0], reverse=True)[:RECENT_DUPLICATES]
    return Duplicates(
        count=sum(row[0] for row in rows),
        first_at=from_micros(min(row[1] for row in rows)) if rows else None,
        last_at=from_micros(max(row[2] for row in rows)) if rows else None,
        recent=tuple(Suppressed(from_micros(at), request_id) for at, request_id in recent),
    )
