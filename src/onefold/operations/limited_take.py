"""Take from queues that are limited, ordered or held, and from groups.

A plain take skips such queues and groups, so a limit cannot be exceeded. Here the row of the queue
is locked first: counts stay true until the commit. The number of running jobs can only fall
meanwhile, because every other take waits for the lock.

No statement reads a whole backlog. If few jobs with a group are due, all of them are read. If many
are due, the groups are visited in turn, a few at a time, each for its best jobs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from onefold.model.delivery import TakeOrder
from onefold.model.ids import enqueue_order
from onefold.model.limit import Rate, stored_rate
from onefold.operations.queues import TakenUnderControl, home_of
from onefold.operations.statement import in_all_shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onefold.model.job import JobRow
    from onefold.operations.statement import Operation, Row, Sql, Statement

WINDOW: Final = 256
"""Groups per visit; also the due jobs that are read one by one (see `find_due_groups`)."""
WINDOWS: Final = 4
"""Groups that one take visits."""
SHARE: Final = 4
"""How many times more jobs are read than wanted, so that the best of many groups are among them."""
REST: Final = 50_000
"""Microseconds before more groups are visited, if these had no job to take."""


class Candidate(NamedTuple):
    """A due job, in the order in which jobs should run."""

    priority: int
    run_at: int
    id: str
    shard: int
    group_key: str | None


class Control(msgspec.Struct, frozen=True):
    """The limits of a queue during a take."""

    queue: str
    home: int
    order: TakeOrder
    paused: bool
    ordered: bool
    concurrency: int | None
    rate: Rate | None
    group_concurrency: int | None
    group_rate: Rate | None
    held_until: int | None
    now: int

    @property
    def at_once(self) -> int | None:
        """How many jobs of a group may run at a time."""
        return 1 if self.ordered else self.group_concurrency

    @property
    def rest(self) -> int:
        """Microseconds for which the queue is held."""
        return 0 if self.held_until is None else max(0, self.held_until - self.now)


class Room(msgspec.Struct, frozen=True):
    """How many jobs of a queue, or of one of its groups, may start."""

    left: int
    full_at: int = 0
    """The tokens in the bucket of its rate."""


def take_controlled(
    sql: Sql, order: TakeOrder, queue: str, *, after: str = ""
) -> Operation[TakenUnderControl]:
    """Lease due jobs of one queue, as many as its limits allow, by priority, run_at and id.

    `after` is the last group of the take before.
    """
    control = yield from _lock(sql, order, queue)
    if control.paused or control.rest:
        return TakenUnderControl([], control.rest or None, after)
    room = yield from _room(sql, control)
    if not room.left:
        return TakenUnderControl([], _wait(control, room), after)
    visit = _Visit(control, room.left)
    due = yield from _due_groups(sql, control)
    if due.is_all:
        yield from visit.singly(sql, due.jobs)
    else:
        after = yield from visit.in_turn(sql, after)
        if visit.wants_more:
            yield from visit.sample(sql, due.jobs)
    ungrouped = yield from _ungrouped(sql, control, room.left)
    chosen = sorted([*visit.found, *ungrouped])[: room.left]
    jobs = yield from _lease(sql, control, chosen)
    waits = yield from _spend(sql, control, room, visit.rooms, jobs)
    if visit.unfinished and len(jobs) < room.left:
        waits.append(REST)
    proves = control.held_until is not None
    return TakenUnderControl(jobs, min(waits, default=None), after, proves)


def _lock(sql: Sql, order: TakeOrder, queue: str) -> Operation[Control]:
    home = home_of(sql, queue)
    rows = yield sql("lock_queue", shard=home, queue=queue)
    if not rows:
        yield sql("insert_queue", shard=home, queue=queue)
        rows = yield sql("lock_queue", shard=home, queue=queue)
    ((paused, ordered, concurrency, *rate, group_concurrency, count, period, held, now),) = rows
    return Control(
        queue,
        home,
        order,
        paused=bool(paused),
        ordered=bool(ordered),
        concurrency=concurrency,
        rate=stored_rate(*rate),
        group_concurrency=group_concurrency,
        group_rate=stored_rate(count, period),
        held_until=held,
        now=now,
    )


# --- the queue as a whole -------------------------------------------------------------------------


def _room(sql: Sql, control: Control) -> Operation[Room]:
    """How many jobs of the queue may start."""
    left, full_at = min(control.order.limit, control.order.queues[control.queue]), 0
    if control.held_until is not None:
        left = yield from _probes(sql, control, control.held_until)
    if left and control.concurrency is not None:
        free = control.concurrency
        for shard in range(sql.shards):
            rows = yield sql("count_running", shard=shard, queue=control.queue, most=free)
            free -= rows[0][0]
        left = min(left, free)
    if control.rate is not None and left:
        rates = yield from _rates(sql, control, control.rate, [""])
        full_at = rates.get("", 0)
        left = min(left, control.rate.left(full_at, control.now))
    return Room(left, full_at)


def _probes(sql: Sql, control: Control, since: int) -> Operation[int]:
    """The hold is over, but no job has succeeded since: one job at a time, on any shard.

    A job counts if it was taken after the hold and is running or waits for its ack. Jobs from
    before the hold do not count: their acks may take long, and must not keep the queue closed.
    """
    for shard in range(sql.shards):
        if (yield sql("find_probe", shard=shard, queue=control.queue, since=since)):
            return 0
    return 1


def _wait(control: Control, room: Room) -> int | None:
    """How long no job can be taken; None if no rate is the reason."""
    rate = control.rate
    return None if rate is None else rate.wait(room.full_at, control.now) or None


def _rates(
    sql: Sql, control: Control, rate: Rate, groups: Sequence[str]
) -> Operation[dict[str, int]]:
    """When the buckets will be full, by group.

    After the clock was set back, a bucket may seem empty for longer than possible. It is corrected
    at once: otherwise it would stay so until the old time is reached.
    """
    rows = yield sql("find_rates", shard=control.home, queue=control.queue, groups=list(groups))
    stored = {row[0]: row[1] for row in rows}
    rates = {group: rate.believed(full_at, control.now) for group, full_at in stored.items()}
    wrong = [group for group in sorted(rates) if rates[group] != stored[group]]
    if wrong:
        yield _save_rates(sql, [(control.home, control.queue, one, rates[one]) for one in wrong])
    return rates


def _save_rates(sql: Sql, rows: Sequence[tuple[int, str, str, int]]) -> Statement:
    return sql("save_rates", ("shard", "queue", "group_key", "full_at"), rows)


def _ungrouped(sql: Sql, control: Control, most: int) -> Operation[list[Candidate]]:
    unknown = list(control.order.unknown)
    rows = yield from in_all_shards(
        sql, "find_ready_jobs", queue=control.queue, limit=most, unknown=unknown
    )
    return list(map(Candidate._make, rows))


# --- its groups -----------------------------------------------------------------------------------


class Due(NamedTuple):
    """Due jobs with a group."""

    jobs: set[Candidate]
    is_all: bool
    """False: there are more jobs than these, which are the longest due and the latest."""


def _due_groups(sql: Sql, control: Control) -> Operation[Due]:
    found: set[Candidate] = set()
    is_all = True
    for shard in range(sql.shards):
        rows = yield sql(
            "find_due_groups",
            shard=shard,
            queue=control.queue,
            unknown=list(control.order.unknown),
        )
        here = set(map(Candidate._make, rows))
        is_all = is_all and len(here) < WINDOW
        found |= here
    return Due(found, is_all)


class _Visit:
    """The jobs that the groups of a queue can give."""

    def __init__(self, control: Control, wanted: int) -> None:
        self._control = control
        self._wanted = wanted
        self.found: list[Candidate] = []
        self.rooms: dict[str, Room] = {}
        self.unfinished = False
        """True: some groups have not been visited."""

    @property
    def wants_more(self) -> bool:
        """True: more jobs are wanted."""
        return len(self.found) < self._wanted

    def singly(self, sql: Sql, due: Iterable[Candidate]) -> Operation[None]:
        """Choose among all due jobs."""
        groups = sorted({job.group_key for job in due if job.group_key is not None})
        if not groups:
            return
        open_groups = yield from self._open(sql, groups)
        if self._control.ordered:
            yield from self._add_heads(sql, open_groups)
        else:
            self._add(due)

    def in_turn(self, sql: Sql, after: str) -> Operation[str]:
        """Visit groups, from `after` on and around to it again, until there are enough jobs."""
        start, wrapped = after, not after
        for _ in range(WINDOWS):
            groups = yield from _next_groups(sql, self._control, after)
            if wrapped and start:
                groups = [group for group in groups if group <= start]
            fresh = [group for group in groups if group not in self.rooms]
            if fresh:
                open_groups = yield from self._open(sql, fresh)
                yield from self._add_best(sql, open_groups)
            if not self.wants_more:
                return groups[-1]
            if len(groups) == WINDOW:
                after = groups[-1]
            elif wrapped:
                return ""
            else:
                after, wrapped = "", True
        self.unfinished = True
        return after

    def sample(self, sql: Sql, due: Iterable[Candidate]) -> Operation[None]:
        """Visit the groups of some due jobs before their turn: maybe only they can run.

        So a take finds them behind many jobs of a full group, and among many groups whose jobs are
        not due.
        """
        groups = {job.group_key for job in due if job.group_key is not None}
        unseen = sorted(groups.difference(self.rooms))
        if unseen:
            open_groups = yield from self._open(sql, unseen)
            yield from self._add_best(sql, open_groups)

    def _open(self, sql: Sql, groups: Sequence[str]) -> Operation[list[str]]:
        """The groups that may start a job; `rooms` has how many."""
        control, running = self._control, Counter[str]()
        if control.at_once is not None:
            rows = yield from in_all_shards(
                sql,
                "count_groups_running",
                queue=control.queue,
                groups=list(groups),
                most=control.at_once,
            )
            for group, count in rows:
                running[group] += count
        rates: dict[str, int] = {}
        if control.group_rate is not None:
            rates = yield from _rates(sql, control, control.group_rate, groups)
        for group in groups:
            self.rooms[group] = self._room_of(running[group], rates.get(group, 0))
        return [group for group in groups if self.rooms[group].left]

    def _room_of(self, running: int, full_at: int) -> Room:
        left, control = self._wanted, self._control
        if control.at_once is not None:
            left = min(left, max(0, control.at_once - running))
        if control.group_rate is not None:
            left = min(left, control.group_rate.left(full_at, control.now))
        return Room(left, full_at)

    def _add_best(self, sql: Sql, groups: Sequence[str]) -> Operation[None]:
        if self._control.ordered:
            yield from self._add_heads(sql, groups)
            return
        if not groups:
            return
        share = max(1, SHARE * self._wanted // len(groups))
        most = min(share, max(self.rooms[group].left for group in groups))
        found = yield from in_all_shards(
            sql,
            "find_group_jobs",
            queue=self._control.queue,
            groups=list(groups),
            most=most,
            unknown=list(self._control.order.unknown),
        )
        self._add(map(Candidate._make, found))

    def _add_heads(self, sql: Sql, groups: Sequence[str]) -> Operation[None]:
        """In an ordered group, the oldest job if it is due; until then the group waits."""
        if not groups:
            return
        rows = yield from in_all_shards(
            sql,
            "find_group_heads",
            queue=self._control.queue,
            groups=list(groups),
            unknown=list(self._control.order.unknown),
        )
        heads: dict[str, Row] = {}
        for row in rows:
            known = heads.get(row[4])
            if known is None or enqueue_order(row[2]) < enqueue_order(known[2]):
                heads[row[4]] = row
        self._add(Candidate._make(row[:5]) for row in heads.values() if row[5])

    def _add(self, candidates: Iterable[Candidate]) -> None:
        """The best jobs of each group, at most as many as it may start."""
        given: Counter[str | None] = Counter()
        for candidate in sorted(candidates):
            group = candidate.group_key or ""
            if given[group] < self.rooms[group].left:
                given[group] += 1
                self.found.append(candidate)


def _next_groups(sql: Sql, control: Control, after: str) -> Operation[list[str]]:
    """The next groups with waiting jobs, over all shards."""
    rows = yield from in_all_shards(
        sql, "next_groups", queue=control.queue, after=after, limit=WINDOW
    )
    # Python orders text by code points, which is the order of UTF-8 bytes in both databases.
    return sorted({row[0] for row in rows})[:WINDOW]


# --- what was decided -----------------------------------------------------------------------------


def _lease(sql: Sql, control: Control, chosen: Sequence[Candidate]) -> Operation[list[JobRow]]:
    jobs: dict[str, JobRow] = {}
    for shard in sorted({candidate.shard for candidate in chosen}):
        rows = yield sql(
            "lease_jobs",
            shard=shard,
            ids=sorted(candidate.id for candidate in chosen if candidate.shard == shard),
            worker=control.order.worker,
            take_id=control.order.take_id,
            lease=control.order.lease,
        )
        jobs.update((job.id, job) for job in control.order.taken(rows))
    return [jobs[candidate.id] for candidate in chosen if candidate.id in jobs]


def _spend(
    sql: Sql, control: Control, room: Room, rooms: dict[str, Room], jobs: Sequence[JobRow]
) -> Operation[list[int]]:
    """Take tokens for the taken jobs; returns how long the empty buckets stay empty."""
    waits: list[int] = []
    rows: list[tuple[int, str, str, int]] = []
    buckets = [("", control.rate, room, len(jobs))]
    of_group = Counter(job.group_key for job in jobs)
    buckets += [
        (group, control.group_rate, its_room, of_group[group])
        for group, its_room in sorted(rooms.items())
    ]
    for group, rate, its_room, tokens in buckets:
        if rate is None:
            continue
        full_at = its_room.full_at
        if tokens:
            full_at = rate.spent(full_at, control.now, tokens)
            rows.append((control.home, control.queue, group, full_at))
        if wait := rate.wait(full_at, control.now):
            waits.append(wait)
    if rows:
        yield _save_rates(sql, rows)
    return waits
