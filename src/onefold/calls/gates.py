"""The engine's calls for whoever pushes jobs: hold and open queues, and park deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.calls.procedure import Gather, Procedure, once_through
from onefold.databases.batching import Item
from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.model.delivery import Delivery, Ended, deliveries
from onefold.model.queue import HELD_WHYS, HeldWhy
from onefold.model.timestamps import MICROSECOND, from_micros, span, to_micros
from onefold.operations import queues
from onefold.operations.acks import Parking, next_timeout, park

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from onefold.calls.procedure import Conductor
    from onefold.model.job import Job
    from onefold.model.queue import ServedQueue

EXCHANGE_BYTES: Final = 64 * 1024
ENDPOINT_BYTES: Final = 8 * 1024


class GateCalls:
    """What a courier says about queues and deliveries, beside what every worker does."""

    _conductor: Conductor

    def hold(
        self,
        queue: str,
        *,
        after: timedelta | None = None,
        until: datetime | None = None,
        why: HeldWhy,
        force: bool = False,
    ) -> datetime:
        """Give nothing of a queue for so long, or until then; answers when the hold ends.

        Afterwards it gives one job at a time, on whatever machine, until somebody opens it. A hold
        that ends later stays as it is, unless this one is forced.
        """
        return from_micros(self._conductor.run(_hold(queue, after, until, why, force=force)))

    async def ahold(
        self,
        queue: str,
        *,
        after: timedelta | None = None,
        until: datetime | None = None,
        why: HeldWhy,
        force: bool = False,
    ) -> datetime:
        """`hold`, awaited."""
        procedure = _hold(queue, after, until, why, force=force)
        return from_micros(await self._conductor.arun(procedure))

    def open(
        self,
        queue: str,
        *,
        force: bool = False,
        by: Job | None = None,
        only: HeldWhy | None = None,
    ) -> bool:
        """A job of the queue has gone well: end its hold, and forget the failures.

        Writes nothing where there is nothing to end, and answers False. Unless an operator forces
        it, a hold stays that is not over yet, or was not over when the job `by` was taken: such a
        job was under way before. `only` ends a hold with that reason and no other.
        """
        return self._conductor.run(_open(queue, force=force, by=by, only=only))

    async def aopen(
        self,
        queue: str,
        *,
        force: bool = False,
        by: Job | None = None,
        only: HeldWhy | None = None,
    ) -> bool:
        """`open`, awaited."""
        return await self._conductor.arun(_open(queue, force=force, by=by, only=only))

    def failed(self, queue: str) -> int:
        """Count a failure of the queue's endpoint; answers how many there are in a row."""
        return self._conductor.run(_failed(queue))

    async def afailed(self, queue: str) -> int:
        """`failed`, awaited."""
        return await self._conductor.arun(_failed(queue))

    def stop(self, queue: str, *, endpoint: str, why: str) -> bool:
        """Pause a queue whose endpoint wants nothing more, and say why.

        False where there is no such queue, or it has another endpoint by now.
        """
        return self._conductor.run(_stop(queue, endpoint, why))

    async def astop(self, queue: str, *, endpoint: str, why: str) -> bool:
        """`stop`, awaited."""
        return await self._conductor.arun(_stop(queue, endpoint, why))

    def park(
        self,
        delivery: Job | Delivery,
        *,
        ack_timeout: timedelta,
        dead: bool = False,
        exchange: str | None = None,
    ) -> Ended:
        """The receiver has the job, and will say more: have it wait for its ack for so long.

        Without one in time the attempt has failed, or the job is buried where `dead` says so.
        `exchange` is what was answered, as JSON. `already` says that the worker's word was faster.
        """
        procedure = _park(delivery, ack_timeout, dead=dead, exchange=exchange)
        return self._conductor.run(procedure)

    async def apark(
        self,
        delivery: Job | Delivery,
        *,
        ack_timeout: timedelta,
        dead: bool = False,
        exchange: str | None = None,
    ) -> Ended:
        """`park`, awaited."""
        procedure = _park(delivery, ack_timeout, dead=dead, exchange=exchange)
        return await self._conductor.arun(procedure)

    def next_ack_timeout(self) -> timedelta | None:
        """In how long a delivery has waited for its ack in vain; None where none waits for one.

        Below 0 where it has already, and a rescue is due.
        """
        return _span(self._conductor.run(once_through(next_timeout, write=False)))

    async def anext_ack_timeout(self) -> timedelta | None:
        """`next_ack_timeout`, awaited."""
        return _span(await self._conductor.arun(once_through(next_timeout, write=False)))

    def pushed_queues(self) -> list[ServedQueue]:
        """The queues of all tenants that have an endpoint: one statement a shard."""
        return self._conductor.run(once_through(queues.pushed, write=False))

    async def apushed_queues(self) -> list[ServedQueue]:
        """`pushed_queues`, awaited."""
        return await self._conductor.arun(once_through(queues.pushed, write=False))


def _span(micros: int | None) -> timedelta | None:
    return None if micros is None else micros * MICROSECOND


def _hold(
    queue: str,
    after: timedelta | None,
    until: datetime | None,
    why: HeldWhy,
    *,
    force: bool,
) -> Procedure[int]:
    name = checks.queue(queue, "queue")
    checks.flag(force, "force")
    if why not in HELD_WHYS:
        raise InvalidInput("why", f"must be one of {', '.join(HELD_WHYS)}, got {why!r}")
    if (after is None) == (until is None):
        raise InvalidInput("until", "must be given, or after: one of the two")
    delay = None if after is None else span(after, "after")
    moment = None if until is None else to_micros(until, "until")
    return once_through(
        lambda sql: queues.hold(sql, name, why=why, after=delay, until=moment, force=force)
    )


def _open(queue: str, *, force: bool, by: Job | None, only: HeldWhy | None) -> Procedure[bool]:
    name = checks.queue(queue, "queue")
    checks.flag(force, "force")
    taken_at = None if by is None else by.taken_at_micros
    return once_through(
        lambda sql: queues.open_gate(sql, name, force=force, taken_at=taken_at, only=only)
    )


def _failed(queue: str) -> Procedure[int]:
    name = checks.queue(queue, "queue")
    return once_through(lambda sql: queues.failed(sql, name))


def _stop(queue: str, endpoint: str, why: str) -> Procedure[bool]:
    name = checks.queue(queue, "queue")
    place = checks.text(endpoint, "endpoint", longest=ENDPOINT_BYTES)
    said = checks.text(why, "why", longest=checks.REASON_BYTES)
    return once_through(lambda sql: queues.stop(sql, name, endpoint=place, why=said))


def _park(
    delivery: Job | Delivery, ack_timeout: timedelta, *, dead: bool, exchange: str | None
) -> Procedure[Ended]:
    """In one commit with those that others park now."""
    (named,) = deliveries([delivery])
    parking = Parking(
        named,
        span(ack_timeout, "ack_timeout", least=MICROSECOND),
        checks.flag(dead, "dead"),
        None if exchange is None else checks.text(exchange, "exchange", longest=EXCHANGE_BYTES),
    )
    ended: Ended = yield Gather(Item(park, parking, "park", named.id))
    return ended
