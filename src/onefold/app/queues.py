"""`Queues`: declare, save, find, pause and limit queues; hold those whose endpoint fails."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from onefold.app.context import Noun
from onefold.errors import InvalidInput, QueueNotEmpty
from onefold.jobs.defaults import JobDefaults
from onefold.model import checks
from onefold.model.checks import qualified
from onefold.model.queue import (
    DEFAULTS,
    HOLD_REASONS,
    HoldReason,
    Queue,
    QueueLimits,
    QueuePage,
    check_secret,
    checked,
    new_secret,
    queue_limits,
)
from onefold.model.timestamps import from_micros, span, to_micros
from onefold.operations import queues
from onefold.runtime import Procedure, awaited, call, transact

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from onefold.app.context import Context
    from onefold.model.job import Job
    from onefold.model.lifecycle import Retention
    from onefold.model.limit import Limit
    from onefold.model.queue import FailingCounts, QueueSettings
    from onefold.model.retry import Backoff
    from onefold.operations.statement import Operation, Sql

BATCH: Final = 500
OVERLAP: Final = timedelta(hours=24)
"""How long an old secret still signs."""
DELETE_ROUNDS: Final = 8
"""How often `delete` with `force` empties a queue: one that still gets jobs then is in use."""
ENDPOINT_BYTES: Final = 8 * 1024


class Queues(Noun):
    """The queues of one tenant. Without a tenant: all queues, by their full names."""

    def __init__(
        self, context: Context, known_queues: Callable[[], dict[str, bool]] = dict
    ) -> None:
        """`known_queues` returns the queues that the code declares, and whether they have jobs."""
        super().__init__(context)
        self._known_queues = known_queues
        self._limits: dict[str, QueueLimits] = {}

    @property
    def declared(self) -> tuple[str, ...]:
        """The names that `declare` has received."""
        return tuple(self._limits)

    def declare(
        self,
        name: str,
        *,
        backoff: Backoff | None = None,
        retention: Retention | None = None,
        timeout: timedelta | None = None,
        limit: Limit | None = None,
        group_limit: Limit | None = None,
        ordered: bool = False,
    ) -> None:
        """Set the defaults for jobs of a queue, and its limits.

        The options of a job win over those of its kind, and these over those of its queue. The
        defaults apply to all later enqueues of this object, tenants and `within` included. Workers
        store the limits when they start, unless an operator has set others: `limit` is for the
        whole queue, `group_limit` for each group, `ordered` runs one job of a group at a time, in
        order.
        """
        limits = queue_limits(limit, group_limit, ordered=ordered)
        defaults = JobDefaults(backoff, retention, timeout, group_limit)
        self._context.defaults.set_for_queue(name, defaults)
        self._limits[name] = limits

    @call
    def store_declared(self) -> Procedure[None]:
        """Store the limits of `declare`, as every worker does when it starts.

        They replace earlier declared limits, but not the limits that an operator has set.
        """
        if self._limits:
            yield from transact(lambda sql: queues.declare(sql, self._limits))

    astore_declared: Final = awaited(store_declared)

    @call
    def find(
        self,
        *,
        saved: bool = False,
        after: str | None = None,
        limit: int | None = None,
        counts: bool = True,
    ) -> Procedure[QueuePage]:
        """The queues of this tenant by name; without a tenant, of all tenants by full name.

        These are the saved queues, and those with limits or unfinished jobs. `saved` returns only
        the queues that were saved for this tenant, and also counts their dead jobs. Without
        `counts` it is faster, but queues that only have jobs are not found.
        """
        tenant = self._context.tenant
        cursor = None if after is None else checks.text(after, "after")
        checks.flag(saved, "saved")
        checks.flag(counts, "counts")
        if limit is not None and (type(limit) is not int or not 1 <= limit < queues.ALL):
            raise InvalidInput("limit", f"must be a whole number from 1, got {limit!r}")
        # One more than the page shows whether there are more.
        most = queues.ALL if limit is None else limit + 1

        def build(sql: Sql) -> Operation[QueuePage]:
            if saved:
                found = yield from queues.find_saved(
                    sql, tenant, after=cursor, limit=most, counts=counts
                )
            else:
                found = yield from queues.find(sql, tenant, counts=counts)
                found = [one for one in found if cursor is None or name_of(one) > cursor]
            page = found[:limit]
            return QueuePage(tuple(page), name_of(page[-1]) if len(found) > len(page) else None)

        def name_of(queue: Queue) -> str:
            return queue.name if tenant or saved else queue.full_name

        return self._context.shards.read("queues", build)

    afind: Final = awaited(find)

    @call
    def count_failing(self) -> Procedure[dict[str, FailingCounts]]:
        """How many jobs are retrying and dead, by the full name of the queue."""
        counting = partial(queues.count_failing, tenant=self._context.tenant)
        return self._context.shards.read("queues", counting)

    acount_failing: Final = awaited(count_failing)

    @call
    def save(
        self, name: str, settings: QueueSettings = DEFAULTS, *, new: bool = False
    ) -> Procedure[Queue]:
        """Create a queue of `onefold serve`, or replace its settings.

        Without `signing_secret`, the stored ones stay; a queue with an endpoint and without a
        secret gets a new one. Without `paused`, a paused queue stays paused. With `new`, raises
        `InvalidInput` if the queue exists.
        """
        tenant = self._context.tenant
        qualified(tenant, name)
        wanted = checked(settings)
        checks.flag(new, "new")
        # Made before the first try, so that every try stores the same secret.
        secret = new_secret()
        return transact(lambda sql: queues.save(sql, tenant, name, wanted, secret=secret, new=new))

    asave: Final = awaited(save)

    @call
    def get(self, name: str, *, counts: bool = False) -> Procedure[Queue | None]:
        """A saved queue, or None; `counts` adds the numbers of its jobs, which takes longer."""
        tenant = self._context.tenant
        qualified(tenant, name)
        checks.flag(counts, "counts")
        return transact(lambda sql: queues.get(sql, tenant, name, counts=counts), write=False)

    aget: Final = awaited(get)

    @call
    def delete(self, name: str, *, force: bool = False) -> Procedure[bool]:
        """Remove a saved queue with its limits and its hold; False if there is no such queue.

        Raises `QueueNotEmpty` while it has queued or running jobs; `force` removes these too. Ended
        jobs stay for as long as they are kept.
        """
        tenant = self._context.tenant
        queue = qualified(tenant, name)
        rounds = DELETE_ROUNDS if checks.flag(force, "force") else 0
        while True:
            try:
                return (yield from transact(lambda sql: queues.delete(sql, tenant, name)))
            except QueueNotEmpty:
                if not rounds:
                    raise
                rounds -= 1
                yield from _empty(queue)

    adelete: Final = awaited(delete)

    @call
    def pause(self, name: str) -> Procedure[Queue | None]:
        """Give no more jobs of a queue to any worker. Running jobs continue.

        Returns the saved queue, or None for a queue that is not saved: a tenant can only pause
        saved queues. Otherwise a queue that this code does not declare, and that has no stored
        data, raises `InvalidInput`.
        """
        return self._pausing(name, paused=True)

    apause: Final = awaited(pause)

    @call
    def resume(self, name: str) -> Procedure[Queue | None]:
        """Resume a paused queue. Returns and raises as `pause` does."""
        return self._pausing(name, paused=False)

    aresume: Final = awaited(resume)

    def _pausing(self, name: str, *, paused: bool) -> Procedure[Queue | None]:
        queue, known = self._name(name), self._known_queues()
        owner, own_name = checks.parted(queue)

        def build(sql: Sql) -> Operation[Queue | None]:
            saved = yield from queues.set_paused(sql, owner, own_name, paused=paused)
            if saved is None and not self._context.tenant:
                yield from queues.check_known(sql, queue, known)
                yield from (queues.pause if paused else queues.resume)(sql, queue)
            return saved

        return transact(build)

    @call
    def set_limits(
        self,
        name: str,
        *,
        limit: Limit | None = None,
        group_limit: Limit | None = None,
        ordered: bool = False,
    ) -> Procedure[None]:
        """Set the limits of a queue: for all of it, and for each of its groups.

        They replace the limits that the code declares, and stay until `clear_limits`. With
        `ordered`, the jobs of a group run one at a time, in the order in which they were enqueued.
        """
        limits = queue_limits(limit, group_limit, ordered=ordered)
        if group_limit is not None and group_limit.key is not None:
            raise InvalidInput(
                "group_limit",
                "has a key, which says how the code groups its jobs: declare it there",
            )
        queue = self._name(name)
        return transact(lambda sql: queues.set_limits(sql, queue, limits))

    aset_limits: Final = awaited(set_limits)

    @call
    def clear_limits(self, name: str) -> Procedure[None]:
        """Remove the limits that an operator has set.

        The limits that the code declares apply again when the next worker starts.
        """
        queue = self._name(name)
        return transact(lambda sql: queues.clear_limits(sql, queue))

    aclear_limits: Final = awaited(clear_limits)

    @call
    def rotate_secret(
        self, name: str, *, secret: str | None = None, overlap: timedelta = OVERLAP
    ) -> Procedure[Queue | None]:
        """Sign with another secret, by default a new one; None if there is no such queue.

        The old secret also signs during `overlap`, so that receivers can change over.
        """
        qualified(self._context.tenant, name)
        span(overlap, "overlap")
        text = new_secret() if secret is None else secret
        check_secret(text, "signing_secret")
        build = partial(
            queues.rotate,
            tenant=self._context.tenant,
            name=name,
            secret=text,
            now=from_micros(self._context.now()),
            overlap=overlap,
        )
        return transact(build)

    arotate_secret: Final = awaited(rotate_secret)

    @call
    def hold(
        self,
        name: str,
        *,
        after: timedelta | None = None,
        until: datetime | None = None,
        why: HoldReason,
        force: bool = False,
    ) -> Procedure[datetime]:
        """Give no jobs of a queue for some time; returns when the hold ends.

        Afterwards the queue gives one job at a time, over all machines, until `open` is called. A
        hold that ends later is kept, unless `force` is given.
        """
        queue = self._name(name)
        checks.flag(force, "force")
        if why not in HOLD_REASONS:
            raise InvalidInput("why", f"must be one of {', '.join(HOLD_REASONS)}, got {why!r}")
        if (after is None) == (until is None):
            raise InvalidInput("until", "or after must be given, and not both")
        delay = None if after is None else span(after, "after")
        moment = None if until is None else to_micros(until, "until")
        build = partial(queues.hold, queue=queue, why=why, after=delay, until=moment, force=force)
        return from_micros((yield from transact(build)))

    ahold: Final = awaited(hold)

    @call
    def end_hold(
        self,
        name: str,
        *,
        force: bool = False,
        by: Job | None = None,
        only: HoldReason | None = None,
    ) -> Procedure[bool]:
        """End the hold of a queue after a successful job, and reset the count of failures.

        False if there was nothing to end. Without `force`, a hold stays if it is not over yet, or
        was not over when the job `by` was taken. `only` ends a hold with that reason and no other.
        """
        queue = self._name(name)
        checks.flag(force, "force")
        taken_at = None if by is None or by.taken_at is None else to_micros(by.taken_at, "by")
        build = partial(queues.end_hold, queue=queue, force=force, taken_at=taken_at, only=only)
        return transact(build)

    aend_hold: Final = awaited(end_hold)

    @call
    def count_failure(self, name: str) -> Procedure[int]:
        """Count a failure of the queue's endpoint; returns how many there are in a row."""
        queue = self._name(name)
        return transact(lambda sql: queues.failed(sql, queue))

    acount_failure: Final = awaited(count_failure)

    @call
    def pause_endpoint(self, name: str, *, endpoint: str, why: str) -> Procedure[bool]:
        """Pause a queue whose endpoint accepts nothing more, and store the reason.

        False if there is no such queue, or if it has another endpoint by now.
        """
        queue = self._name(name)
        place = checks.text(endpoint, "endpoint", longest=ENDPOINT_BYTES)
        reason = checks.text(why, "why", longest=checks.REASON_BYTES)
        build = partial(queues.pause_endpoint, queue=queue, endpoint=place, why=reason)
        return transact(build)

    apause_endpoint: Final = awaited(pause_endpoint)

    @call
    def pushed(self) -> Procedure[list[Queue]]:
        """The queues of all tenants that have an endpoint."""
        return self._context.shards.read("queues", partial(queues.all_saved, pushed=True))

    apushed: Final = awaited(pushed)

    def _name(self, name: str) -> str:
        """The full name of a queue of this tenant."""
        tenant = self._context.tenant
        return qualified(tenant, name) if tenant else checks.queue(name, "queue")


def _empty(queue: str) -> Procedure[None]:
    """Run one batch per transaction, so that an interrupted call can be repeated."""
    removed = BATCH
    while removed >= BATCH:
        removed = yield from transact(partial(queues.empty, queue=queue, limit=BATCH))
