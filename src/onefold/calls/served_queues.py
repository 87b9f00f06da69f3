"""The calls about queues of the server."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from onefold.calls.procedure import Procedure, Transaction, once_through
from onefold.errors import QueueNotEmpty
from onefold.model import checks
from onefold.model.queue import QueueConfiguration, SigningSecret, checked, new_secret, qualified
from onefold.model.timestamps import from_micros, span
from onefold.operations import queues

if TYPE_CHECKING:
    from onefold.calls.procedure import Conductor
    from onefold.model.queue import ServedQueue

BATCH: Final = 500
OVERLAP: Final = timedelta(hours=24)
"""For which an old secret signs along."""
ROUNDS: Final = 8
"""A queue that has new jobs so often while it is emptied is one that somebody still needs."""


class ServedQueueCalls:
    """A tenant's queues, as `onefold serve` has them: where their jobs go, and how."""

    _conductor: Conductor
    _tenant: str

    def save_served_queue(
        self, name: str, configuration: QueueConfiguration, *, paused: bool | None = None
    ) -> ServedQueue:
        """Make a queue, or say anew what holds for it.

        Without `secrets`, those that are stored stay; where there is an endpoint and no secret, one
        is made. Without `paused`, a queue that is paused stays so. Its limits are the engine's from
        now on.
        """
        return self._conductor.run(self._save(name, configuration, paused=paused))

    async def asave_served_queue(
        self, name: str, configuration: QueueConfiguration, *, paused: bool | None = None
    ) -> ServedQueue:
        """`save_served_queue`, awaited."""
        return await self._conductor.arun(self._save(name, configuration, paused=paused))

    def _save(
        self, name: str, configuration: QueueConfiguration, *, paused: bool | None
    ) -> Procedure[ServedQueue]:
        qualified(self._tenant, name)
        said = checked(configuration)
        if paused is not None:
            checks.flag(paused, "paused")
        # Made before the first try, so that every try stores the same.
        secret = new_secret()
        return once_through(
            lambda sql: queues.save(sql, self._tenant, name, said, secret=secret, paused=paused)
        )

    def pause_served_queue(self, name: str) -> ServedQueue | None:
        """Give no more of its jobs to anybody. None where there is no queue."""
        return self._conductor.run(self._set_paused(name, paused=True))

    async def apause_served_queue(self, name: str) -> ServedQueue | None:
        """`pause_served_queue`, awaited."""
        return await self._conductor.arun(self._set_paused(name, paused=True))

    def resume_served_queue(self, name: str) -> ServedQueue | None:
        """Let it go on, whyever it was paused. None where there is no queue."""
        return self._conductor.run(self._set_paused(name, paused=False))

    async def aresume_served_queue(self, name: str) -> ServedQueue | None:
        """`resume_served_queue`, awaited."""
        return await self._conductor.arun(self._set_paused(name, paused=False))

    def _set_paused(self, name: str, *, paused: bool) -> Procedure[ServedQueue | None]:
        qualified(self._tenant, name)
        return once_through(lambda sql: queues.set_paused(sql, self._tenant, name, paused=paused))

    def rotate_secret(
        self, name: str, *, secret: str | None = None, overlap: timedelta = OVERLAP
    ) -> ServedQueue | None:
        """Sign with another secret, a new one unless it is given; None where there is no queue.

        The old one signs along for `overlap`, so that receivers can change over meanwhile.
        """
        return self._conductor.run(self._rotate(name, secret, overlap))

    async def arotate_secret(
        self, name: str, *, secret: str | None = None, overlap: timedelta = OVERLAP
    ) -> ServedQueue | None:
        """`rotate_secret`, awaited."""
        return await self._conductor.arun(self._rotate(name, secret, overlap))

    def _rotate(
        self, name: str, secret: str | None, overlap: timedelta
    ) -> Procedure[ServedQueue | None]:
        qualified(self._tenant, name)
        span(overlap, "overlap")
        text = new_secret().text if secret is None else secret
        checked(QueueConfiguration(secrets=(SigningSecret(text),)))
        build = partial(
            queues.rotate,
            tenant=self._tenant,
            name=name,
            secret=text,
            now=from_micros(self._conductor.now()),
            overlap=overlap,
        )
        return once_through(build)

    def served_queue(self, name: str, *, counts: bool = False) -> ServedQueue | None:
        """The queue of that name; with `counts`, what is in it, which takes longer to tell."""
        return self._conductor.run(self._served_queue(name, counts=counts))

    async def aserved_queue(self, name: str, *, counts: bool = False) -> ServedQueue | None:
        """`served_queue`, awaited."""
        return await self._conductor.arun(self._served_queue(name, counts=counts))

    def _served_queue(self, name: str, *, counts: bool) -> Procedure[ServedQueue | None]:
        qualified(self._tenant, name)
        checks.flag(counts, "counts")
        return once_through(
            lambda sql: queues.get(sql, self._tenant, name, counts=counts), write=False
        )

    def served_queues(
        self, *, after: str | None = None, limit: int = 100, counts: bool = False
    ) -> list[ServedQueue]:
        """The tenant's queues by name, from the one after `after` on."""
        return self._conductor.run(self._served_queues(after, limit, counts=counts))

    async def aserved_queues(
        self, *, after: str | None = None, limit: int = 100, counts: bool = False
    ) -> list[ServedQueue]:
        """`served_queues`, awaited."""
        return await self._conductor.arun(self._served_queues(after, limit, counts=counts))

    def _served_queues(
        self, after: str | None, limit: int, *, counts: bool
    ) -> Procedure[list[ServedQueue]]:
        cursor = None if after is None else checks.text(after, "after")
        checks.flag(counts, "counts")
        return once_through(
            lambda sql: queues.find_served(
                sql, self._tenant, after=cursor, limit=limit, counts=counts
            ),
            write=False,
        )

    def delete_served_queue(self, name: str, *, force: bool = False) -> bool:
        """Remove a queue, its limits and its hold included; False where there is none.

        Raises `QueueNotEmpty` while jobs are queued in it or running, unless told by `force` to
        remove them, too. Those that have ended stay for as long as they are kept.
        """
        return self._conductor.run(self._delete_queue(name, force=force))

    async def adelete_served_queue(self, name: str, *, force: bool = False) -> bool:
        """`delete_served_queue`, awaited."""
        return await self._conductor.arun(self._delete_queue(name, force=force))

    def _delete_queue(self, name: str, *, force: bool) -> Procedure[bool]:
        queue = qualified(self._tenant, name)
        rounds = ROUNDS if checks.flag(force, "force") else 0
        while True:
            try:
                deleted: bool = yield Transaction(
                    lambda sql: queues.delete(sql, self._tenant, name)
                )
            except QueueNotEmpty:
                if not rounds:
                    raise
                rounds -= 1
                yield from _empty(queue)
            else:
                return deleted


def _empty(queue: str) -> Procedure[None]:
    """A batch a transaction: what dies midway has done whole batches, and can be repeated."""
    removed = BATCH
    while removed >= BATCH:
        removed = yield Transaction(partial(queues.empty, queue=queue, limit=BATCH))
