"""Takes jobs, gives them to the executor, and reports their outcomes.

Completed jobs are reported and new jobs are taken in one transaction, one after the other, while
handlers run. Other outcomes may wait for locks, so they are reported in their own transaction.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter, deque
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from onefold.errors import DatabaseError
from onefold.model.delivery import Delivery
from onefold.model.lifecycle import Event
from onefold.operations import deliveries, endings, queues
from onefold.operations.deliveries import Finish
from onefold.operations.endings import Ending
from onefold.runtime import Procedure, transact
from onefold.worker import delivery_outcome
from onefold.worker.deliveries import (
    ShardRotation,
    finish_and_take,
    finish_then_take,
    limited_take,
    report,
)
from onefold.worker.executor import HeldDelivery, lease_time
from onefold.worker.job_log import job_fields, job_log
from onefold.worker.queue_monitor import HELD, Prefetch

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterable, Sequence
    from datetime import timedelta
    from typing import Any, TypeAlias

    from onefold.app.context import Context
    from onefold.databases import Exchanges
    from onefold.model.delivery import Ended, TakeOrder
    from onefold.model.job import JobRow, JobState
    from onefold.worker.after_commit import AfterCommit
    from onefold.worker.delivery_outcome import DeliveryOutcome
    from onefold.worker.executor import Executor, Handlers
    from onefold.worker.queue_monitor import QueueMonitor
    from onefold.worker.settings import WorkerSettings

    ExchangeResult: TypeAlias = tuple[Sequence[Ended | None], list[JobRow]]

REPORT: Final = 1_000
"""Deliveries that are reported in one transaction."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
LOST_TAKE: Final = 10.0
"""Seconds for which jobs of a take without a response are searched."""
SEARCH_INTERVAL: Final = 1.0
POSTPONED: Final = 1.0
"""Seconds until outcomes on a shard that fails are reported again."""
SLICE: Final = 0.001
"""Seconds for which handlers are started before the event loop does other work."""

log: logging.Logger = logging.getLogger("onefold.worker")


class JobExchange(NamedTuple):
    """Completed jobs to report and new jobs to take, in one transaction."""

    completed: list[HeldDelivery]
    finishes: list[Finish]
    """Those of the completed jobs."""
    order: TakeOrder | None
    turn: int
    """The shard from which to take."""
    began: float
    """By `lease_time`."""


class Producer:
    """The deliveries that this worker holds, and their way from take to report."""

    def __init__(
        self,
        context: Context,
        handlers: Handlers,
        settings: WorkerSettings,
        *,
        monitor: QueueMonitor,
        executor: Executor,
        after_commit: AfterCommit,
        wake: asyncio.Event,
        exchanges: Exchanges | None = None,
    ) -> None:
        """Holds nothing. `monitor` and `executor` set `wake` when there may be something to do.

        `exchanges` is a faster way than the transactions of `store`, where there is one.
        """
        self.held: dict[Delivery, HeldDelivery] = {}
        """Deliveries that are leased to this worker and not yet reported."""
        self._store = context.store
        self._runtime = context.runtime
        self._shards = context.shards
        self._handlers = handlers
        self._settings = settings
        self._monitor = monitor
        self._executor = executor
        self._after_commit = after_commit
        self._wake = wake
        self._exchanges = exchanges
        self._rotation = ShardRotation()
        self._groups: dict[str, str] = {}
        """By queue: the group with which its last limited take has ended."""
        self._prefetch = Prefetch(settings.prefetch, settings.most_prefetched)
        self._waiting: deque[HeldDelivery] = deque()
        self._completed: list[HeldDelivery] = []
        self._failed: list[HeldDelivery] = []
        """Ended in any other way: retried, deferred, dead, cancelled, handed back."""
        self._used: Counter[str] = Counter()
        """By queue: held deliveries, and jobs that the running takes may bring."""
        self._reserved = 0
        """Jobs that the running takes may bring."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._exchanging = 0
        """Exchanges without a response."""
        self._is_reporting = False
        self._is_checking = False
        """True while a check of the waiting jobs is due."""
        self._lost_takes: dict[str, float] = {}
        """By id of a take without a response: until when its jobs are searched. No worker knows of
        these jobs, and the database may process a take after its connection is lost."""
        self._is_searching = False
        self._probes: dict[str, str] = {}
        """By queue that was held: the id of the one job that may run, as a probe."""
        self._stopping = False
        self._pause = FIRST_PAUSE
        self._is_offline = False
        """True for a while after an error of a transaction."""

    async def run(self) -> None:
        """Run until `stop`, and until no delivery is held."""
        while True:
            self._wake.clear()
            self._collect_ended()
            if self._stopping:
                self._hand_back_waiting(len(self._waiting))
            self._start_handlers()
            if not self._is_offline:
                self._start_tasks()
            busy = self._tasks or self._exchanging
            if self._stopping and not (self.held or busy or self._lost_takes):
                return
            await self._pause_until_woken()

    async def _pause_until_woken(self) -> None:
        """Wait until there is something to do, for one turn of the event loop at least."""
        if self._waiting and self._executor.running < self._settings.concurrency:
            self._wake.set()
        elif self._waiting and not self._is_checking:
            self._is_checking = True
            self._prefetch.begin_check()
            asyncio.get_running_loop().call_later(HELD, self._check_waiting)
        if self._wake.is_set():
            await asyncio.sleep(0)  # responses, heartbeats and handlers have a turn
        await self._wake.wait()

    def _start_handlers(self) -> None:
        """Start handlers while there are places, for about a millisecond."""
        concurrency, executor, waiting = self._settings.concurrency, self._executor, self._waiting
        until = time.monotonic() + SLICE
        while waiting and executor.running < concurrency:
            executor.start(waiting.popleft())
            if time.monotonic() > until:
                return

    def _check_waiting(self) -> None:
        """Hand back jobs that would wait for long: other workers may have places for them."""
        self._is_checking = False
        self._hand_back_waiting(self._prefetch.surplus(len(self._waiting)))
        self._wake.set()

    def stop(self) -> None:
        """Take no more jobs, and hand back those that have not started."""
        self._stopping = True
        self._wake.set()

    def interrupt(self) -> None:
        """Stop all handlers, and hand their jobs back."""
        for held in list(self.held.values()):
            if held.started is not None and not held.is_over:
                self._executor.interrupt(held, "shutdown", delivery_outcome.HANDED_BACK)
        self._wake.set()

    def lose(self, lost: Iterable[Delivery]) -> None:
        """Stop handlers of deliveries whose lease is lost. Their outcomes are not reported."""
        for delivery in lost:
            held = self.held.get(delivery)
            if held is None or held.is_over:
                continue
            log.warning("The lease of job %s is lost (fence %d).", delivery.id, delivery.fence)
            if held.started is None:
                held.is_over = True
                self._waiting.remove(held)
                self._drop(held)
                self._after_commit.lost(held)
            elif held.run is None or held.run.mark_lost():
                self._executor.interrupt(held, "lost", None)
            # Else its own transaction is completing it, and that is why it looks lost.
        self._wake.set()

    # --- handlers that have ended ---------------------------------------------------------------

    def _collect_ended(self) -> None:
        ended = self._executor.ended
        self._prefetch.ended += len(ended)
        while ended:
            held = ended.popleft()
            if held.completed or (held.run is not None and held.run.completed):
                self._completed_by_transaction(held)
            elif held.outcome is None:
                self._drop(held)
                (self._after_commit.lost if held.cause else self._after_commit.parked)(held)
            elif held.outcome.event is Event.FINISH:
                self._completed.append(held)
            else:
                self._failed.append(held)

    def _completed_by_transaction(self, held: HeldDelivery) -> None:
        """The job is completed. A failure of its handler after the commit is only logged."""
        if held.outcome is not None and held.outcome.event is not Event.FINISH:
            log.error(
                "Job %s was completed by its transaction, and its handler failed afterwards: %s."
                " The job does not run again.",
                held.row.id,
                held.outcome.error,
                extra=job_fields(held.row),
            )
        self._accepted(held, delivery_outcome.FINISHED, "completed")

    def _accepted(
        self,
        held: HeldDelivery,
        outcome: DeliveryOutcome,
        state: JobState | None,
        retry_in: timedelta | None = None,
    ) -> None:
        self._drop(held)
        if state == "completed" and self._probes.get(held.row.queue) == held.row.id:
            del self._probes[held.row.queue]
            self._spawn(self._open_queue(held.row))
        self._after_commit.accepted(held, outcome, state, retry_in)

    def _hand_back_waiting(self, number: int) -> None:
        """Hand back so many jobs that have not started, the last ones first."""
        for _ in range(number):
            held = self._waiting.pop()
            held.is_over, held.outcome = True, delivery_outcome.HANDED_BACK
            self._failed.append(held)

    def _drop(self, held: HeldDelivery) -> None:
        if self.held.pop(held.delivery, None) is not None:
            self._used[held.row.queue] -= 1
            self._monitor.job_ended(held.row.queue)

    # --- what to do next ------------------------------------------------------------------------

    def _start_tasks(self) -> None:
        """Start takes and reports, as far as there is something to take or to report."""
        # Limited queues and others go first in turn: neither may use all free places.
        if self._monitor.limited and self._monitor.limited_first:
            self._take_from_limited()
        self._exchange_if_needed()
        if self._failed and not self._is_reporting:
            self._is_reporting = True
            self._spawn(self._report(self._failed[:REPORT]))
            del self._failed[:REPORT]
        if self._lost_takes and not self._is_searching:
            self._is_searching = True
            self._spawn(self._search_lost_takes())
        if self._monitor.limited:
            self._take_from_limited()

    def _exchange_if_needed(self) -> None:
        """Report completed jobs and take new ones.

        One exchange at a time: jobs that end meanwhile are reported together by the next. If jobs
        are quick, two: the database processes one while the jobs of the other run.
        """
        are_quick = len(self._completed) >= self._settings.concurrency
        if self._exchanging and (self._exchanging > 1 or not are_quick or self._waiting):
            return
        order, turn = None, 0
        if self._monitor.plain and (room := self._room()) > 0:
            if are_quick:  # a half for each of the two
                room = min(room, (self._settings.concurrency + self._prefetch.size + 1) // 2)
            order = self._monitor.next_take(room, self._used)
            if order is not None:
                self._reserve(order)
                turn = self._rotation.next(order.queues)
        if order is None and not self._completed:
            return
        completed = self._completed[:REPORT]
        del self._completed[:REPORT]
        finishes = list(map(_finish, completed))
        exchange = JobExchange(completed, finishes, order, turn, lease_time())
        self._exchanging += 1
        is_sent = (
            self._exchanges is not None
            and self._shards.number == 1
            # Others need more than one statement.
            and all(map(attrgetter("plain"), finishes))
            and self._exchanges.send(
                partial(finish_then_take, finishes=finishes, order=order, turn=turn),
                partial(self._answered, exchange),
            )
        )
        if not is_sent:
            self._spawn(self._exchange(exchange))

    def _take_from_limited(self) -> None:
        if (room := self._room()) > 0:
            for order in self._monitor.next_limited_takes(room, self._used):
                self._reserve(order)
                self._spawn(self._take_limited(order))

    def _room(self) -> int:
        """How many jobs may be taken, beside those that run or wait."""
        prefetch, waiting = self._prefetch.size, len(self._waiting)
        if self._stopping:
            return 0
        used = self._executor.running + waiting + self._reserved
        return self._settings.concurrency + prefetch - used

    def _reserve(self, order: TakeOrder) -> None:
        """Reserve places for the jobs that a take may bring."""
        self._reserved += order.limit
        self._used.update(order.queues)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake.set()

    # --- transactions ---------------------------------------------------------------------------

    async def _exchange(self, exchange: JobExchange) -> None:
        """An exchange in a transaction of the store, or in one for each shard."""
        completed, finishes, order, turn, _ = exchange
        results: list[ExchangeResult] = []
        with self._handling_errors(completed, self._completed, order):
            results.append(
                await finish_and_take(self._runtime, self._shards, finishes, order, turn=turn)
            )
        self._exchanging -= 1
        # At once: its places are released, and no other take may use them before its jobs do.
        for result in results:  # none after an error
            self._exchanged(exchange, result)

    def _answered(self, exchange: JobExchange, result: ExchangeResult | None) -> None:
        """The end of an exchange on the connection of its own."""
        self._exchanging -= 1
        if exchange.order is not None:
            self._take_ended(exchange.order, answered=result is not None)
        if result is not None:
            self._exchanged(exchange, result)
        else:
            # The store reports it again. The take is not sent again: its jobs are searched.
            self._completed.extend(exchange.completed)
        self._wake.set()

    def _exchanged(self, exchange: JobExchange, result: ExchangeResult) -> None:
        """Process a response. The next exchange leaves before the jobs of this one start."""
        ended, taken = result
        self._monitor.answered.set()
        now = lease_time()
        self._prefetch.exchanged(now - exchange.began, now)
        with self._handling_errors(exchange.completed):
            if locked := self._settle(exchange.completed, ended, self._completed):
                self._spawn(self._finish_locked(locked))
            if exchange.order is not None:
                self._monitor.taken(exchange.order, taken)
                self._receive(taken, exchange.began)
        self._collect_ended()
        if not self._is_offline:
            self._start_tasks()

    async def _take_limited(self, order: TakeOrder) -> None:
        """Take from one queue with limits, groups or an order."""
        (queue,) = order.queues
        began = lease_time()
        with self._handling_errors(order=order, offline=self._shards.number == 1):
            taken = await self._store.atransact(
                partial(limited_take, queue=queue, order=order, groups=self._groups)
            )
            self._monitor.taken_limited(queue, order.limit, taken)
            if taken.proves:
                self._probes.update((queue, job.id) for job in taken.rows)
            self._receive(taken.rows, began)

    async def _report(self, failed: list[HeldDelivery]) -> None:
        """Report other outcomes than completion. This may wait for locks."""
        with self._handling_errors(failed, self._failed):
            ended = await report(
                self._runtime, self._shards, endings.end, list(map(_ending, failed))
            )
            self._settle(failed, ended, self._failed, waited=True)
            self._monitor.jobs_returned()
        self._is_reporting = False

    async def _finish_locked(self, completed: list[HeldDelivery]) -> None:
        """Report completed jobs whose rows were locked, or have successors; wait for the locks."""
        with self._handling_errors(completed, self._completed):
            finishes = list(map(_finish, completed))
            ended = await report(self._runtime, self._shards, deliveries.finish, finishes)
            self._settle(completed, ended, self._completed, waited=True)

    async def _search_lost_takes(self) -> None:
        """Hand back the jobs of takes without a response. Repeated until their time is over."""
        once, takes = self._stopping, list(self._lost_takes)
        with self._handling_errors():
            search = partial(_returned, takes=takes)
            returned = sum(await self._runtime.arun(self._shards.each("search", search)))
            now = time.monotonic()
            for take in takes:
                if once or self._lost_takes[take] <= now:
                    del self._lost_takes[take]
            if returned:
                log.info("The response to a take was lost: %d jobs were handed back.", returned)
        asyncio.get_running_loop().call_later(SEARCH_INTERVAL, self._search_again)

    def _search_again(self) -> None:
        self._is_searching = False
        self._wake.set()

    async def _open_queue(self, job: JobRow) -> None:
        """End the hold of a queue whose probe has completed. Without it, another probe follows."""
        with self._handling_errors():
            await self._store.atransact(
                partial(queues.end_hold, queue=job.queue, taken_at=job.taken_at)
            )

    async def _hand_back(self, job: JobRow) -> None:
        handed_back = Ending(Delivery(job.id, job.fence), Event.HAND_BACK)
        with self._handling_errors():
            await self._store.atransact(partial(endings.end, endings=[handed_back]))

    @contextmanager
    def _handling_errors(
        self,
        reported: Sequence[HeldDelivery] = (),
        report_again: list[HeldDelivery] | None = None,
        order: TakeOrder | None = None,
        *,
        offline: bool = True,
    ) -> Generator[None]:
        """Keep the worker running after an error of a transaction.

        Without `offline` an error does not mean that the database is away.

        After a database error, outcomes are reported again: one that was accepted is answered as
        `already`. Jobs of a take without a response are searched; only its last try can have one.
        """
        answered = True
        try:
            yield
            self._pause = FIRST_PAUSE
        except DatabaseError as error:
            answered = False
            if offline:
                self._go_offline(error)
            else:
                log.warning("A take failed and is tried again at the next look: %s", error)
            if report_again is not None:
                report_again.extend(reported)
        except Exception:
            log.exception("The worker lost jobs; they run again when their leases end.")
            for held in reported:
                self._drop(held)
            if offline:  # The next try may raise it, too.
                self._rest()
        finally:
            if order is not None:
                self._take_ended(order, answered=answered)

    def _take_ended(self, order: TakeOrder, *, answered: bool) -> None:
        """Release the places of a take, and search the jobs of tries without a response."""
        self._reserved -= order.limit
        self._used.subtract(order.queues)
        lost = order.tries[:-1] if answered else order.tries
        self._lost_takes.update(dict.fromkeys(lost, time.monotonic() + LOST_TAKE))

    def _settle(
        self,
        reported: Sequence[HeldDelivery],
        ended: Sequence[Ended | None],
        report_again: list[HeldDelivery],
        *,
        waited: bool = False,
    ) -> list[HeldDelivery]:
        """Process the answers of the database; returns deliveries whose rows may be locked.

        Those on a shard that fails are reported again later.
        """
        locked: list[HeldDelivery] = []
        postponed: list[HeldDelivery] = []
        for held, answer in zip(reported, ended, strict=True):
            if answer is None:
                postponed.append(held)
            elif answer.status != "lost":
                assert held.outcome is not None
                self._accepted(held, held.outcome, answer.state, answer.retry_in)
            elif not waited and not answer.has_ended:
                locked.append(held)
            else:
                self._drop(held)
                self._after_commit.fenced(held)
        if postponed:
            loop = asyncio.get_running_loop()
            loop.call_later(POSTPONED, self._report_again, postponed, report_again)
        return locked

    def _report_again(self, held: list[HeldDelivery], report_again: list[HeldDelivery]) -> None:
        report_again.extend(held)
        self._wake.set()

    def _receive(self, taken: Sequence[JobRow], began: float) -> None:
        """Hold the jobs of a take that began then; those without a handler go back."""
        leased_until = began + self._settings.lease.total_seconds()
        for job in taken:
            handler = self._handlers.get(job.kind)
            if handler is None:
                self._reject(job)
                continue
            held = HeldDelivery(job, handler, leased_until)
            self.held[held.delivery] = held
            self._used[job.queue] += 1
            self._waiting.append(held)
            if job_log.isEnabledFor(logging.DEBUG):
                job_log.debug(
                    "Job %s (%s) was taken for attempt %d.", job.id, job.kind, job.attempt,
                    extra=job_fields(job),
                )  # fmt: skip

    def _reject(self, job: JobRow) -> None:
        if job.kind not in self._monitor.unknown_kinds:
            self._monitor.unknown_kinds.add(job.kind)
            log.warning(
                "Jobs of the kind %r are waiting in the queue %r, and this worker has no handler"
                " for them. They are left for a worker that has one.",
                job.kind,
                job.queue,
            )
        self._spawn(self._hand_back(job))

    # --- database errors ------------------------------------------------------------------------

    def _go_offline(self, error: DatabaseError) -> None:
        if not self._is_offline:
            log.warning("The database is not available; the worker waits for it: %s", error)
        self._rest()

    def _rest(self) -> None:
        """Pause all takes and reports for a while, longer each time until one succeeds."""
        if not self._is_offline:
            self._is_offline = True
            pause = self._pause * (0.5 + random.random())
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            asyncio.get_running_loop().call_later(pause, self._go_online)

    def _go_online(self) -> None:
        self._is_offline = False
        self._monitor.look_everywhere()
        self._wake.set()


def _returned(shard: int, takes: Sequence[str]) -> Procedure[int]:
    return (
        yield from transact(
            lambda sql: deliveries.return_taken(sql.only([shard]) if sql.shards > 1 else sql, takes)
        )
    )


def _finish(held: HeldDelivery) -> Finish:
    assert held.outcome is not None
    plain = held.row.options is None or held.job.retention is None
    return Finish(held.delivery, held.outcome.result, plain=plain)


def _ending(held: HeldDelivery) -> Ending:
    outcome = held.outcome
    assert outcome is not None
    return Ending(held.delivery, outcome.event, outcome.after, outcome.reason, outcome.error)
