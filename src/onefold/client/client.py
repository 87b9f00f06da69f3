"""`Client` and `AsyncClient`: the calls of Onefold on a server, with the names of the library."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, cast, overload

from onefold.client import publish
from onefold.client.calls import Awaiting, Blocking, HttpCalls, Mode, call
from onefold.client.claims import HttpClaims, RemoteOnceOptions
from onefold.client.connection import connection_to, decode
from onefold.client.events import AsyncRemoteEvents, RemoteEvents, event_filter
from onefold.client.lock import HttpLocks, RemoteLock
from onefold.client.nouns import (
    ClientDead,
    ClientDeliveries,
    ClientKeys,
    ClientQueues,
    ClientSchedules,
    ClientStatistics,
    ClientWorkers,
    find_query,
)
from onefold.client.requests import ChangeReply, path, wire_body
from onefold.client.steps import AsyncRemoteSteps, RemoteSteps, step_log
from onefold.effects.claims import SURFACE, ClaimOptions
from onefold.effects.once import OnceContext
from onefold.errors import JobNotFound
from onefold.jobs.enqueue_options import EMPTY
from onefold.model import checks
from onefold.model.job import Enqueued, Job, JobPage
from onefold.runtime import Runtime

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence
    from typing import Self, Unpack

    from onefold.app.jobs import FindOptions
    from onefold.client.claims import RemoteAttemptOptions
    from onefold.client.connection import ClientOptions, Connection
    from onefold.effects.once import OnceClaim, OnceOptions
    from onefold.jobs.enqueue_options import CallOptions, EnqueueOptions
    from onefold.model.claim import ClaimAnswer
    from onefold.model.job import EnqueuedMany, Json, NewJob
    from onefold.runtime import Procedure

TTL: Final = timedelta(seconds=30)


class ClientCalls(HttpCalls[Mode], Generic[Mode]):
    """The calls that both clients have."""

    def __init__(self, connection: Connection, runtime: Runtime, mode: type[Mode]) -> None:
        """Made by a client."""
        super().__init__(connection, runtime, mode)
        self.queues: ClientQueues[Mode] = ClientQueues(connection, runtime, mode)
        self.keys: ClientKeys[Mode] = ClientKeys(connection, runtime, mode)
        self.schedules: ClientSchedules[Mode] = ClientSchedules(connection, runtime, mode)
        self.statistics: ClientStatistics[Mode] = ClientStatistics(connection, runtime, mode)
        self.workers: ClientWorkers[Mode] = ClientWorkers(connection, runtime, mode)
        self.dead: ClientDead[Mode] = ClientDead(connection, runtime, mode)
        self.deliveries: ClientDeliveries[Mode] = ClientDeliveries(connection, runtime, mode)

    def __repr__(self) -> str:
        # Without the API key.
        return f"{type(self).__name__}({self._connection.url!r})"

    @call
    def enqueue(
        self, kind: str, payload: Json = EMPTY, **options: Unpack[EnqueueOptions]
    ) -> Procedure[Enqueued[Any]]:
        """Store a job on the server, or find the job that holds its key.

        Without an `idempotency_key`, the client generates one before the first try. So this call
        stores at most one job, also if responses are lost. With your own key, the same holds for
        every repetition of the call.
        """
        return (yield from publish.enqueue(self._connection, kind, payload, options))

    @call
    def enqueue_many(
        self, new_jobs: Sequence[NewJob], **options: Unpack[CallOptions]
    ) -> Procedure[EnqueuedMany[Any]]:
        """Store many jobs; the result has one item per job, in order.

        A request has up to 10,000 jobs of one queue, or 3 MiB of them, and is all or nothing. More
        jobs are several requests, one after the other.
        """
        return (yield from publish.enqueue_many(self._connection, new_jobs, options))

    @call
    def get(self, job_id: str) -> Procedure[Job | None]:
        """A job, or None."""
        return (yield from publish.get_job(self._connection, job_id))

    @call
    def find(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = False,
        **filters: Unpack[FindOptions],
    ) -> Procedure[JobPage]:
        """Jobs by filter, one page at a time: `after=page.next` continues."""
        query = {**find_query(filters), "limit": limit, "after": after}
        if newest_first:
            query["newestFirst"] = "true"
        response = yield from self._connection.get(path("jobs"), query)
        return decode(response, JobPage)

    @call
    def cancel(self, job_id: str, *, reason: str | None = None) -> Procedure[bool]:
        """Cancel a queued or running job. False if it was cancelled before."""
        body = wire_body({"reason": reason})
        response = yield from self._connection.post(path("jobs", job_id, "cancel"), body)
        return not decode(response, ChangeReply).already

    @call
    def replay(self, job_id: str, *, fresh: bool = False) -> Procedure[Enqueued[Any]]:
        """Run a dead or cancelled job again; with `fresh`, also a completed one."""
        body = {"fresh": True} if fresh else {}
        response = yield from self._connection.post(path("jobs", job_id, "replay"), body)
        return decode(response, Enqueued)

    @call
    def delete(self, job_id: str) -> Procedure[bool]:
        """Delete a job in any state and release its key. False if there is none.

        If the response to a first try was lost, False may mean that this call deleted it.
        """
        try:
            yield from self._connection.delete(path("jobs", job_id))
        except JobNotFound:
            return False
        return True

    @call
    def claim(
        self, scope: str, key: str, *, surface: str = SURFACE, **options: Unpack[ClaimOptions]
    ) -> Procedure[ClaimAnswer]:
        """Take a key: Won, Replay, Busy, Mismatch or Unknown.

        The work follows under a lease. `takeover` sets what happens if the worker vanishes.
        """
        checks.options(options, ClaimOptions.__optional_keys__)
        claims = HttpClaims(self._connection, self._runtime)
        return (yield from claims.claim(claims.want(surface, scope, key, options)))

    @overload
    def once(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        *,
        busy: Literal["raise"] = "raise",
        **options: Unpack[RemoteAttemptOptions],
    ) -> OnceContext[OnceClaim]: ...
    @overload
    def once(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        *,
        busy: Literal["skip"],
        **options: Unpack[RemoteAttemptOptions],
    ) -> OnceContext[OnceClaim | None]: ...
    def once(
        self,
        name: str,
        key: str | Callable[..., str] | None = None,
        **options: Unpack[RemoteOnceOptions],
    ) -> OnceContext[Any]:
        """Run something once per key and store its result.

        For `with` and plain functions of a `Client`, for `async with` and coroutine functions of an
        `AsyncClient`. A failure releases the key. In a decorator, `key` may be a function of the
        arguments; without it, the key is a digest of them.
        """
        checks.options(options, RemoteOnceOptions.__optional_keys__)
        claims = HttpClaims(self._connection, self._runtime)
        return OnceContext(claims, name, key, cast("OnceOptions", options))

    def lock(self, name: str, *, ttl: timedelta = TTL, wait: timedelta | None = None) -> RemoteLock:
        """A lease on a name with a fencing token, for `with`, or `async with` of an `AsyncClient`.

        It is renewed until it is released. It is an efficiency lock: a holder that is paused longer
        than its `ttl` may overlap with the next one. If that matters, pass `lock.fence` to the
        system that you write to.
        """
        return RemoteLock(HttpLocks(self._connection, self._runtime), name, ttl, wait)


class Client(ClientCalls[Blocking]):
    """The jobs, keys and queues of a server, for plain code. Threads may share a client.

        with Client("https://onefold.example.com", api_key="of_…") as client:
            client.enqueue("invoice.email", {"id": 7}, queue="email")

    The server executes every call once, also if responses are lost: all tries of a call are the
    same request with the same key.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`tls` is for a server whose certificate is signed by your own authority."""
        from onefold.client.urllib3_sender import Urllib3Sender

        connection = connection_to(url, api_key, options)
        self._sender = Urllib3Sender(connection, tls)
        super().__init__(connection, Runtime(sender=self._sender), Blocking)

    def steps(self, job_id: str, *, fence: int) -> RemoteSteps:
        """The steps of a delivery of yours: `client.steps(…).step("charge", …)`."""
        return RemoteSteps(self._runtime, step_log(self._connection, job_id, fence))

    def events(
        self, *, queue: str | None = None, event: Sequence[str] = (), after: str | None = None
    ) -> RemoteEvents:
        """The events of your jobs and keys from now on: for `with`, and for `for`.

        If the connection ends, the client reconnects and continues after the last event. If the
        server cannot know what was missed, an event `gap` is delivered. `after` is the `id` of an
        event, or `last_id`.
        """
        wanted = event_filter(queue=queue, event=event, after=after)
        return RemoteEvents(self._sender, self._connection, wanted)

    def close(self) -> None:
        """Close the idle connections."""
        self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class AsyncClient(ClientCalls[Awaiting]):
    """`Client` with coroutines. It belongs to the event loop of its first request.

    async with AsyncClient("https://onefold.example.com", api_key="of_…") as client:
        await client.enqueue("invoice.email", {"id": 7}, queue="email")
    """

    is_awaited: bool = True

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`tls` is for a server whose certificate is signed by your own authority."""
        from onefold.client.aiohttp_sender import AiohttpSender

        connection = connection_to(url, api_key, options)
        self._sender = AiohttpSender(connection, tls)
        super().__init__(connection, Runtime(sender=self._sender), Awaiting)

    def steps(self, job_id: str, *, fence: int) -> AsyncRemoteSteps:
        """The steps of a delivery of yours: `client.steps(…).step("charge", …)`."""
        return AsyncRemoteSteps(self._runtime, step_log(self._connection, job_id, fence))

    def events(
        self, *, queue: str | None = None, event: Sequence[str] = (), after: str | None = None
    ) -> AsyncRemoteEvents:
        """The events of your jobs and keys from now on: for `async with`, and for `async for`.

        It reconnects as that of a `Client` does.
        """
        wanted = event_filter(queue=queue, event=event, after=after)
        return AsyncRemoteEvents(self._sender, self._connection, wanted)

    async def close(self) -> None:
        """Close the connections."""
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()
