"""A delivery that this worker holds: waiting for its turn, running, or not yet reported.

The producer: takes jobs, has them run, and reports how they ended.

Both travel in flights: one finishes what has ended and takes what there is room for, in one round
trip. Handlers run meanwhile, on what the last one brought.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter, deque
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from onefold.errors import DatabaseError
from onefold.model.delivery import Delivery
from onefold.model.lifecycle import Event
from onefold.worker import delivery_outcome
from onefold.worker.job_log import job_fields, job_log
from onefold.worker.queue_monitor import Pace, QueueDemand, allot

if TYPE_CHECKING:
    from asyncio import TimerHandle
    from collections.abc import (
        Callable,
        Collection,
        Coroutine,
        Generator,
        Iterable,
        Mapping,
        Sequence,
    )
    from datetime import timedelta
    from typing import Any

    from onefold.effects.run import Run
    from onefold.model.delivery import Ended, TakeOrder
    from onefold.model.job import Job, StateWord
    from onefold.worker.after_commit import Afterwards
    from onefold.worker.deliveries import DeliveryCalls, UncheckedDeliveries
    from onefold.worker.delivery_outcome import DeliveryOutcome
    from onefold.worker.executor import Executor
    from onefold.worker.handlers import BoundHandler, Handlers
    from onefold.worker.queue_monitor import QueueMonitor
    from onefold.worker.settings import WorkerSettings


Cause: TypeAlias = Literal["timeout", "lost", "shutdown"]
"""Why a handler is stopped by us."""


class HeldDelivery:
    """One delivery and what has become of it here."""

    __slots__ = (
        "alarm", "cause", "completed", "declared", "delivery", "ended", "is_over", "job", "run",
        "started", "stop", "verdict",
    )  # fmt: skip

    def __init__(self, job: Job, declared: BoundHandler) -> None:
        """Taken just now."""
        self.job: Job = job
        self.declared: BoundHandler = declared
        self.delivery: Delivery = Delivery(job.id, job.fence)
        self.run: Run | None = None
        """What the handler is given, once it runs."""
        self.started: float | None = None
        """By the monotonic clock; None while it waits for its turn."""
        self.ended: float = 0.0
        self.stop: Callable[[], object] | None = None
        """Interrupts the handler, as far as it can be."""
        self.cause: Cause | None = None
        self.alarm: TimerHandle | None = None
        """Rings when the handler has taken too long."""
        self.verdict: DeliveryOutcome | None = None
        self.completed: bool = False
        """True where a transaction of the handler's, in a process of its own, has completed it."""
        self.is_over: bool = False
        """True once nothing more is to be said about it, whatever the handler still does."""

    @property
    def duration(self) -> float:
        """Seconds that the handler took."""
        return 0.0 if self.started is None else max(0.0, self.ended - self.started)

    def interrupt(self, cause: Cause) -> None:
        """Ask the handler to stop, and remember why. The first reason counts."""
        if self.cause is None:
            self.cause = cause
            if self.stop is not None:
                self.stop()


REPORT: Final = 1_000
"""Deliveries in one flight."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0
DOUBTED: Final = 10.0
"""Seconds for which a take without an answer is asked about."""
ASK_AGAIN: Final = 1.0

log: logging.Logger = logging.getLogger("onefold.worker")


class Reservation(NamedTuple):
    """What a flight under way may bring."""

    total: int
    queues: Mapping[str, int]


class Producer:
    """What this worker holds, and all that it says to the database about it."""

    def __init__(
        self,
        calls: DeliveryCalls,
        unchecked: UncheckedDeliveries,
        registry: Handlers,
        settings: WorkerSettings,
        afterwards: Afterwards,
    ) -> None:
        """Nothing is held yet; `executor` is given before the run."""
        self._calls = calls
        self._unchecked = unchecked
        self._registry = registry
        self._settings = settings
        self._afterwards = afterwards
        self.executor: Executor
        self.lookout: QueueMonitor
        self.held: dict[Delivery, HeldDelivery] = {}
        """Everything that is leased to us and not yet reported."""
        self._ready: deque[HeldDelivery] = deque()
        self._finished: list[HeldDelivery] = []
        """Ended well, and not yet reported."""
        self._others: list[HeldDelivery] = []
        """Ended otherwise, and not yet reported."""
        self._running = 0
        self._turns = list(settings.queues)
        """The order of queues that are served in turn: those that gave jobs last are at the end."""
        self._pace = Pace(settings.prefetch, settings.most_prefetched)
        self._by_queue: Counter[str] = Counter()
        self._asked = 0
        """Jobs that flights under way may bring."""
        self._asked_of: Counter[str] = Counter()
        """The same, of queues that may have so many here and no more."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_flying = False
        """One flight at a time: what ends meanwhile goes with the next, all in one commit."""
        self._is_reporting = False
        self._controlled_is_next = False
        self._wake = asyncio.Event()
        self._unknown: set[str] = set()
        self._probes: dict[str, str] = {}
        """By queue that was held: the id of the job that it gave to see whether it can go on."""
        self._stopping = False
        self._doubts: dict[str, float] = {}
        """Takes that had no answer, each with the time until which it is asked about."""
        self._ask_at = 0.0
        self._pause = FIRST_PAUSE
        self._grounded = False
        """True for a while after the database could not be reached."""

    # --- what others say ------------------------------------------------------------------------

    def wake(self) -> None:
        """Something may be to do."""
        self._wake.set()

    def deliveries(self) -> list[Delivery]:
        """What the heart keeps alive. Called in its thread."""
        return list(self.held)

    def lose(self, deliveries: Iterable[Delivery]) -> None:
        """These are no longer ours: stop them, and say nothing about them."""
        for delivery in deliveries:
            held = self.held.get(delivery)
            if held is None or held.verdict is not None:
                continue
            log.warning("Job %s is no longer ours (fence %d).", delivery.id, delivery.fence)
            if held.started is None:
                held.is_over = True
                self._ready.remove(held)
                self._drop(held)
                self._afterwards.lost(held)
                continue
            if held.run is not None and not held.run.mark_lost():
                continue  # it is being completed by its own transaction: that is why it looks lost
            held.interrupt("lost")
            if not held.declared.is_async:
                self.executor.give_up(held, None)
        self.wake()

    def over(self, held: HeldDelivery) -> None:
        """A handler has ended."""
        self._running -= 1
        if held.completed or (held.run is not None and held.run.completed):
            self._complete(held)
        elif held.verdict is None:
            self._drop(held)
            # Nothing is to be said of it: it is not ours any more, or the handler has said it all.
            (self._afterwards.lost if held.cause else self._afterwards.parked)(held)
        else:
            self._to_be_reported(held)
        self._pace.ended()
        self._wake.set()

    def _to_be_reported(self, held: HeldDelivery) -> None:
        (self._finished if _finishes(held) else self._others).append(held)

    def _complete(self, held: HeldDelivery) -> None:
        """Its own transaction has said so already; what came after cannot be told any more."""
        word = held.verdict
        if word is not None and word.event is not Event.FINISH:
            log.error(
                "Job %s was completed by its transaction, and failed afterwards: %s. It is not"
                " run again.",
                held.job.id,
                word.error,
                extra=job_fields(held.job),
            )
        self._drop(held)
        self._accepted(held, delivery_outcome.FINISHED, "completed")

    def _accepted(
        self,
        held: HeldDelivery,
        word: DeliveryOutcome,
        state: StateWord | None,
        retry_in: timedelta | None = None,
    ) -> None:
        """The database has it. A probe that went well opens its queue."""
        if state == "completed" and self._probes.get(held.job.queue) == held.job.id:
            del self._probes[held.job.queue]
            self._track(self._open(held.job))
        self._afterwards.accepted(held, word, state, retry_in)

    async def _open(self, job: Job) -> None:
        try:
            await self._unchecked.open_queue(job)
        except DatabaseError as error:
            # It goes on giving one job at a time, and the next that goes well opens it.
            log.warning("The queue %r could not be opened: %s", job.queue, error)

    def stop(self) -> None:
        """Take no more; hand back what has not begun."""
        self._stopping = True
        self._wake.set()

    def interrupt(self) -> None:
        """The grace is nearly over: stop handlers, and hand back what they leave."""
        for held in list(self.held.values()):
            if held.started is not None and held.verdict is None:
                held.interrupt("shutdown")
                if not held.declared.is_async:
                    self.executor.give_up(held, delivery_outcome.HANDED_BACK)
        self._wake.set()

    # --- the loop -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until stopped, and nothing is held any more."""
        while True:
            self._wake.clear()
            if self._stopping:
                self._hand_back()
            self._start_ready()
            self._launch()
            if self._stopping and not (self.held or self._under_way or self._doubts):
                return  # everything that was taken has been answered for
            await self._wake.wait()

    def _start_ready(self) -> None:
        while self._ready and self._running < self._settings.concurrency:
            held = self._ready.popleft()
            self._running += 1
            self.executor.start(held)

    def _hand_back(self) -> None:
        while self._ready:
            held = self._ready.popleft()
            held.is_over, held.verdict = True, delivery_outcome.HANDED_BACK
            self._others.append(held)

    def _launch(self) -> None:
        if self._grounded:
            return
        # In turns: where there is more to do than room for it, neither may have it all.
        if self._controlled_is_next:
            self._ask_controlled()
        if not self._is_flying:
            self._fly_if_needed()
        if self._others and not self._is_reporting:
            self._is_reporting = True
            others, self._others = self._others[:REPORT], self._others[REPORT:]
            self._track(self._report(others))
        if self._doubts and time.monotonic() >= self._ask_at:
            self._ask_at = inf
            self._track(self._ask_back())
        self._ask_controlled()

    def _fly_if_needed(self) -> None:
        finished, self._finished = self._finished[:REPORT], self._finished[REPORT:]
        order = self._order()
        if not finished and order is None:
            return
        if order is not None:
            self._controlled_is_next = True
        self._is_flying = True
        self._track(self._fly(finished, order, self._asking(order)))

    def _ask_controlled(self) -> None:
        """Queues with limits, or with groups, as far as there is room."""
        waiting = self.lookout.controlled()
        limits = self._limits(waiting) if waiting else {}
        for queue in waiting:
            if (room := min(self._room(), limits.get(queue, 0))) > 0:
                self._controlled_is_next = False
                self.lookout.asked_controlled(queue)
                self._track(self._take_controlled(queue, self._ask(room, {queue: room})))

    def _asking(self, order: TakeOrder | None) -> Reservation:
        return Reservation(0, {}) if order is None else self._ask(order.limit, order.queues)

    def _ask(self, total: int, queues: Mapping[str, int]) -> Reservation:
        """Keep room for what a flight may bring."""
        asked = Reservation(total, {q: n for q, n in queues.items() if self._settings.queues[q]})
        self._asked += asked.total
        self._asked_of.update(asked.queues)
        return asked

    def _answered(self, asked: Reservation) -> None:
        self._asked -= asked.total
        self._asked_of.subtract(asked.queues)

    def _track(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("A flight crashed; its jobs come back when their leases end.", exc_info=error)

    def _order(self) -> TakeOrder | None:
        """What there is room for; None where there is none, or nothing to be had."""
        room = self._room()
        if room <= 0:
            return None
        limits = self._limits(self.lookout.plain)
        return self.lookout.order(room, limits, tuple(self._unknown))

    def _room(self) -> int:
        """How many may come beside those that run or wait; what has ended needs none."""
        prefetch, waiting = self._pace.prefetch, len(self._ready)
        if self._stopping or waiting > prefetch // 2:
            return 0
        return self._settings.concurrency + prefetch - self._running - waiting - self._asked

    def _limits(self, queues: Collection[str]) -> dict[str, int]:
        """How many each of these may give, in the order in which queues are served."""
        settings = self._settings
        wishes = [
            QueueDemand(
                queue, settings.queues[queue], self._by_queue[queue] + self._asked_of[queue]
            )
            for queue in (self._turns if settings.rotates else settings.queues)
            if queue in queues
        ]
        return allot(wishes, self._room(), places=settings.concurrency, spread=settings.spread)

    # --- one flight -----------------------------------------------------------------------------

    async def _fly(
        self, finished: list[HeldDelivery], order: TakeOrder | None, asked: Reservation
    ) -> None:
        began = time.monotonic()
        try:
            with self._saying(finished):
                await self._finish_and_take(finished, order)
        finally:
            now = time.monotonic()
            self._pace.landed(now - began, now)
            self._is_flying = False
            self._answered(asked)

    async def _report(self, others: list[HeldDelivery]) -> None:
        """Ends otherwise than well may wait for somebody's lock: they do not travel with others."""
        try:
            with self._saying(others):
                endings = [held.verdict.ending(held.delivery) for held in others if held.verdict]
                self._settle(others, await self._calls.aend(endings))
                self.lookout.came_back()
        finally:
            self._is_reporting = False

    @contextmanager
    def _saying(self, reports: list[HeldDelivery]) -> Generator[None]:
        """Whatever could not be said is said again: an accepted word is answered as `already`."""
        try:
            yield
        except DatabaseError as error:
            self._ground(error)
            for held in reports:
                if held.delivery in self.held:
                    self._to_be_reported(held)
        except Exception:
            log.exception("A report was refused; its jobs come back when their leases end.")
            for held in reports:
                self._drop(held)
        else:
            self._pause = FIRST_PAUSE

    def _ground(self, error: DatabaseError) -> None:
        """Wait a little before the next flight."""
        if not self._grounded:
            log.warning("The database is away, and the worker waits for it: %s", error)
            self._grounded = True
            pause = self._pause * (0.5 + random.random())
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            asyncio.get_running_loop().call_later(pause, self._take_off)

    def _take_off(self) -> None:
        self._grounded = False
        self.lookout.anything()
        self._wake.set()

    async def _take_controlled(self, queue: str, asked: Reservation) -> None:
        """From a queue with limits, or with groups: one that must be asked by itself."""
        settings, room = self._settings, asked.total
        tries: list[str] = []
        try:
            with self._doubting(tries):
                taken = await self._calls.atake_limited(
                    queue, limit=room, worker=settings.name, lease=settings.lease,
                    unknown=tuple(self._unknown), tries=tries,
                )  # fmt: skip
        except DatabaseError as error:
            self._ground(error)
        else:
            self.lookout.taken_controlled(queue, room, taken)
            if taken.proves:
                self._probes.update((queue, job.id) for job in taken.jobs)
            self.receive(taken.jobs)
        finally:
            self._answered(asked)

    async def _finish_and_take(self, finished: list[HeldDelivery], order: TakeOrder | None) -> None:
        finishes = [
            held.verdict.finish(held.delivery, held.job) for held in finished if held.verdict
        ]
        with self._doubting([] if order is None else order.tries):
            ended, taken = await self._unchecked.finish_and_take(finishes, order)
        if order is not None:
            self.lookout.taken(order, taken)
        self._turns.sort(key={job.queue for job in taken}.__contains__)
        self.receive(taken)
        if again := self._settle(finished, ended):
            self._track(self._land(again))

    @contextmanager
    def _doubting(self, tries: list[str]) -> Generator[None]:
        """Remember the tries of a take that had no answer: they may have leased jobs to us."""
        answered = 1
        try:
            yield
        except DatabaseError:
            answered = 0
            raise
        finally:
            if lost := tries[: len(tries) - answered]:
                self._doubts.update(dict.fromkeys(lost, time.monotonic() + DOUBTED))
                self._ask_at = 0.0
                self._wake.set()

    async def _ask_back(self) -> None:
        """Hand back what takes without an answer have leased. No worker knows of those jobs.

        Asked more than once: a server may come to a take after its connection is lost. A worker
        that stops asks once.
        """
        takes = list(self._doubts)
        try:
            returned = await self._unchecked.return_taken(takes)
        except DatabaseError as error:
            self._ground(error)
        else:
            now = time.monotonic()
            for take in takes:
                if self._stopping or self._doubts.get(take, inf) <= now:
                    del self._doubts[take]
            if returned:
                log.info("The answer to a take was lost: %d jobs were handed back.", returned)
        finally:
            self._ask_at = time.monotonic() + ASK_AGAIN
            asyncio.get_running_loop().call_later(ASK_AGAIN, self._wake.set)

    async def _land(self, again: list[HeldDelivery]) -> None:
        """Rows that somebody had locked, or with successors: waited for, one flight's worth."""
        with self._saying(again):
            finishes = [
                held.verdict.finish(held.delivery, held.job) for held in again if held.verdict
            ]
            self._settle(again, await self._unchecked.finish(finishes), waits=True)

    def _settle(
        self, reported: Sequence[HeldDelivery], ended: Sequence[Ended], *, waits: bool = False
    ) -> list[HeldDelivery]:
        """Act on what the database says; answers with those to be asked for once more."""
        again: list[HeldDelivery] = []
        for held, word in zip(reported, ended, strict=True):
            if word.status != "lost":
                self._drop(held)
                assert held.verdict is not None
                self._accepted(held, held.verdict, word.state, word.retry_in)
            elif not waits and _finishes(held) and word.state in {"running", "queued"}:
                again.append(held)
            else:
                self._drop(held)
                self._afterwards.fenced(held)
        return again

    def receive(self, taken: Sequence[Job]) -> None:
        """Jobs that are ours now."""
        for job in taken:
            declared = self._registry.get(job.kind)
            if declared is None:
                self._refuse(job)
                continue
            held = HeldDelivery(job, declared)
            self.held[held.delivery] = held
            self._by_queue[job.queue] += 1
            self._ready.append(held)
            if job_log.isEnabledFor(logging.DEBUG):
                job_log.debug(
                    "Job %s (%s) was taken for attempt %d.", job.id, job.kind, job.attempt,
                    extra=job_fields(job),
                )  # fmt: skip
        self._wake.set()

    def _refuse(self, job: Job) -> None:
        """A kind that this worker has no handler for: it waits for one that has."""
        if job.kind not in self._unknown:
            self._unknown.add(job.kind)
            log.warning(
                "Jobs of the kind %r are waiting in the queue %r, and this worker has no handler"
                " for them. They are left for a worker that has one.",
                job.kind,
                job.queue,
            )
        self._track(self._hand_over(job))

    async def _hand_over(self, job: Job) -> None:
        await self._calls.ahand_back([job])

    def _drop(self, held: HeldDelivery) -> None:
        if self.held.pop(held.delivery, None) is not None:
            self._by_queue[held.job.queue] -= 1
            self.lookout.freed(held.job.queue)


def _finishes(held: HeldDelivery) -> bool:
    return held.verdict is not None and held.verdict.event is Event.FINISH
