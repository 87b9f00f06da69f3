"""The calls about jobs, in both colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onefold.client.flows import callbacks, jobs, publish

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from typing import Unpack

    from onefold.calls.jobs import CallOptions, EnqueueOptions, FindOptions
    from onefold.client.async_driver import AsyncDriver
    from onefold.client.connection import Connection
    from onefold.client.jobs import Accepted, RemoteJob, RemotePage
    from onefold.client.sync_driver import SyncDriver
    from onefold.model.job import Enqueued, EnqueuedMany, Json, NewJob

NOTHING: Mapping[str, Any] = {}
"""The payload of a job that is given none."""


class JobCalls:
    """Enqueue, look, cancel, replay, delete; and the words of a worker about its deliveries."""

    _connection: Connection
    _driver: SyncDriver

    def enqueue(
        self, kind: str, payload: Json = NOTHING, **options: Unpack[EnqueueOptions]
    ) -> Enqueued[Any]:
        """Store a job on the server, or find the one that already stands for the request.

        Without an `idempotency_key` one is made, once: whatever happens on the way, this call makes
        at most one job. With one of your own, the same holds for every repetition of the call.
        """
        return self._driver.run(publish.enqueue(self._connection.ask, kind, payload, options))

    def enqueue_many(
        self, new_jobs: Sequence[NewJob], **options: Unpack[CallOptions]
    ) -> EnqueuedMany[Any]:
        """Store many jobs, and answer for each, in order.

        A request takes 10,000 jobs of one queue, or 3 MiB of them, and is all or nothing; more are
        several requests, one after the other.
        """
        return self._driver.run(publish.enqueue_many(self._connection.ask, new_jobs, options))

    def get(self, job_id: str) -> RemoteJob | None:
        """The job with its history, or None where there is none (any more) for this tenant."""
        return self._driver.run(jobs.look(self._connection.ask, job_id))

    def find(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = False,
        **filters: Unpack[FindOptions],
    ) -> RemotePage:
        """Jobs by filter, a page at a time: `after=page.next` continues."""
        ask = self._connection.ask
        flow = jobs.find(ask, filters, limit=limit, after=after, newest_first=newest_first)
        return self._driver.run(flow)

    def cancel(self, job_id: str, *, reason: str | None = None) -> bool:
        """Stop a queued or running job. False where it had been cancelled before."""
        return self._driver.run(jobs.cancel(self._connection.ask, job_id, reason))

    def replay(self, job_id: str, *, fresh: bool = False) -> Enqueued[Any]:
        """Send a dead or cancelled job round again; with `fresh`, a completed one too."""
        return self._driver.run(jobs.replay(self._connection.ask, job_id, fresh=fresh))

    def replay_many(
        self, *, fresh: bool = False, limit: int | None = None, **filters: Unpack[FindOptions]
    ) -> EnqueuedMany[Any]:
        """Replay the dead letters of one queue, `queue=`, by filter. Safe to repeat."""
        ask = self._connection.ask
        return self._driver.run(jobs.replay_many(ask, filters, fresh=fresh, limit=limit))

    def delete(self, job_id: str) -> bool:
        """Remove a job in any state and free its key, explicitly. False where there was none.

        Where the answer to a first try was lost, False may mean that this call removed it.
        """
        return self._driver.run(jobs.delete(self._connection.ask, job_id))

    def delete_many(self, *, limit: int | None = None, **filters: Unpack[FindOptions]) -> int:
        """Remove the dead letters of one queue, `queue=`, by filter; how many. Safe to repeat.

        Where an answer was lost, those that its request had removed are not counted: neither in
        the answer nor by `limit`, and so many more than that may be gone.
        """
        return self._driver.run(jobs.delete_many(self._connection.ask, filters, limit=limit))

    def acknowledge(
        self, job_id: str, *, fence: int | None = None, result: Json = None
    ) -> Accepted:
        """A delivery is done. Without its fence, the current one is meant."""
        ask = self._connection.ask
        return self._driver.run(callbacks.acknowledge(ask, job_id, fence=fence, result=result))

    def nack(
        self,
        job_id: str,
        *,
        retryable: bool = True,
        reason: str | None = None,
        fence: int | None = None,
    ) -> Accepted:
        """A delivery failed: again by its backoff, or with `retryable=False` to the dead."""
        ask = self._connection.ask
        flow = callbacks.nack(ask, job_id, retryable=retryable, reason=reason, fence=fence)
        return self._driver.run(flow)

    def defer_job(
        self,
        job_id: str,
        *,
        after: timedelta,
        reason: str | None = None,
        fence: int | None = None,
        hold_queue: bool = False,
    ) -> Accepted:
        """Not now: again after a while, and no attempt is burned; `hold_queue` holds them all."""
        ask = self._connection.ask
        flow = callbacks.defer(
            ask, job_id, after=after, reason=reason, fence=fence, hold_queue=hold_queue
        )
        return self._driver.run(flow)

    def heartbeat_job(
        self, job_id: str, *, lease: timedelta | None = None, fence: int | None = None
    ) -> Accepted:
        """Still at work: the delivery has its time anew, or `lease` of it."""
        ask = self._connection.ask
        return self._driver.run(callbacks.heartbeat(ask, job_id, lease=lease, fence=fence))


class AsyncJobCalls:
    """`JobCalls`, awaited."""

    _connection: Connection
    _driver: AsyncDriver

    async def enqueue(
        self, kind: str, payload: Json = NOTHING, **options: Unpack[EnqueueOptions]
    ) -> Enqueued[Any]:
        """Store a job on the server, or find the one that already stands for the request.

        Without an `idempotency_key` one is made, once: whatever happens on the way, this call makes
        at most one job. With one of your own, the same holds for every repetition of the call.
        """
        ask = self._connection.ask
        return await self._driver.run(publish.enqueue(ask, kind, payload, options))

    async def enqueue_many(
        self, new_jobs: Sequence[NewJob], **options: Unpack[CallOptions]
    ) -> EnqueuedMany[Any]:
        """Store many jobs, and answer for each, in order.

        A request takes 10,000 jobs of one queue, or 3 MiB of them, and is all or nothing; more are
        several requests, one after the other.
        """
        ask = self._connection.ask
        return await self._driver.run(publish.enqueue_many(ask, new_jobs, options))

    async def get(self, job_id: str) -> RemoteJob | None:
        """The job with its history, or None where there is none (any more) for this tenant."""
        return await self._driver.run(jobs.look(self._connection.ask, job_id))

    async def find(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = False,
        **filters: Unpack[FindOptions],
    ) -> RemotePage:
        """Jobs by filter, a page at a time: `after=page.next` continues."""
        ask = self._connection.ask
        flow = jobs.find(ask, filters, limit=limit, after=after, newest_first=newest_first)
        return await self._driver.run(flow)

    async def cancel(self, job_id: str, *, reason: str | None = None) -> bool:
        """Stop a queued or running job. False where it had been cancelled before."""
        return await self._driver.run(jobs.cancel(self._connection.ask, job_id, reason))

    async def replay(self, job_id: str, *, fresh: bool = False) -> Enqueued[Any]:
        """Send a dead or cancelled job round again; with `fresh`, a completed one too."""
        return await self._driver.run(jobs.replay(self._connection.ask, job_id, fresh=fresh))

    async def replay_many(
        self, *, fresh: bool = False, limit: int | None = None, **filters: Unpack[FindOptions]
    ) -> EnqueuedMany[Any]:
        """Replay the dead letters of one queue, `queue=`, by filter. Safe to repeat."""
        flow = jobs.replay_many(self._connection.ask, filters, fresh=fresh, limit=limit)
        return await self._driver.run(flow)

    async def delete(self, job_id: str) -> bool:
        """Remove a job in any state and free its key, explicitly. False where there was none.

        Where the answer to a first try was lost, False may mean that this call removed it.
        """
        return await self._driver.run(jobs.delete(self._connection.ask, job_id))

    async def delete_many(self, *, limit: int | None = None, **filters: Unpack[FindOptions]) -> int:
        """Remove the dead letters of one queue, `queue=`, by filter; how many. Safe to repeat.

        Where an answer was lost, those that its request had removed are not counted: neither in
        the answer nor by `limit`, and so many more than that may be gone.
        """
        flow = jobs.delete_many(self._connection.ask, filters, limit=limit)
        return await self._driver.run(flow)

    async def acknowledge(
        self, job_id: str, *, fence: int | None = None, result: Json = None
    ) -> Accepted:
        """A delivery is done. Without its fence, the current one is meant."""
        flow = callbacks.acknowledge(self._connection.ask, job_id, fence=fence, result=result)
        return await self._driver.run(flow)

    async def nack(
        self,
        job_id: str,
        *,
        retryable: bool = True,
        reason: str | None = None,
        fence: int | None = None,
    ) -> Accepted:
        """A delivery failed: again by its backoff, or with `retryable=False` to the dead."""
        ask = self._connection.ask
        flow = callbacks.nack(ask, job_id, retryable=retryable, reason=reason, fence=fence)
        return await self._driver.run(flow)

    async def defer_job(
        self,
        job_id: str,
        *,
        after: timedelta,
        reason: str | None = None,
        fence: int | None = None,
        hold_queue: bool = False,
    ) -> Accepted:
        """Not now: again after a while, and no attempt is burned; `hold_queue` holds them all."""
        ask = self._connection.ask
        flow = callbacks.defer(
            ask, job_id, after=after, reason=reason, fence=fence, hold_queue=hold_queue
        )
        return await self._driver.run(flow)

    async def heartbeat_job(
        self, job_id: str, *, lease: timedelta | None = None, fence: int | None = None
    ) -> Accepted:
        """Still at work: the delivery has its time anew, or `lease` of it."""
        flow = callbacks.heartbeat(self._connection.ask, job_id, lease=lease, fence=fence)
        return await self._driver.run(flow)
