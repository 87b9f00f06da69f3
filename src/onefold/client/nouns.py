"""The nouns of a client: queues, keys, schedules, dead jobs, deliveries, statistics, workers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.app.jobs import FindOptions
from onefold.app.keys import KeyFilters
from onefold.app.schedules import ScheduleOptions
from onefold.app.statistics import LAST, WIDTH
from onefold.client.calls import HttpCalls, Mode, call
from onefold.client.claims import HttpClaims
from onefold.client.connection import decode
from onefold.client.requests import ChangeReply, json_value, path, wire_body
from onefold.effects.claims import LEASE, SURFACE
from onefold.effects.lock import lock_key
from onefold.errors import InvalidInput, QueueNotFound, ScheduleNotFound
from onefold.jobs.enqueue_options import EMPTY
from onefold.model import checks
from onefold.model.attempt import AttemptList
from onefold.model.claim import checked_claim, encode_result
from onefold.model.delivery import Ended
from onefold.model.job import Enqueued, EnqueuedMany, Json
from onefold.model.queue import (
    DEFAULTS,
    Queue,
    QueuePage,
    QueueSecrets,
    QueueSettings,
    checked,
)
from onefold.model.schedule import Schedule, SchedulePage
from onefold.model.statistics import Statistics, WorkerList, WorkerStatus
from onefold.model.stored_key import KeyPage, Why
from onefold.model.waiting import Waiting

if TYPE_CHECKING:
    from typing import Unpack

    from onefold.model.attempt import Attempt
    from onefold.model.claim import Claim
    from onefold.runtime import Procedure

DEAD_JOBS: Final = 1000
"""Dead jobs of one request."""
OVERLAP: Final = timedelta(hours=24)
SECOND: Final = timedelta(seconds=1)


class ClientQueues(HttpCalls[Mode]):
    """The queues of a server. They need an API key with the scope `admin`."""

    @call
    def save(self, name: str, settings: QueueSettings = DEFAULTS) -> Procedure[Queue]:
        """Create a queue, or replace its settings: an omitted one is set to its default."""
        body = checked(settings)
        if isinstance(settings, Queue) and settings.header_names and not settings.headers:
            # `get` and `find` do not return the values, so this would remove the headers.
            reason = f"must have the values of {', '.join(settings.header_names)}"
            raise InvalidInput("headers", f"{reason}: a queue that was read does not have them")
        response = yield from self._connection.put(path("queues", name), body)
        return decode(response, Queue)

    @call
    def get(self, name: str) -> Procedure[Queue | None]:
        """A queue with its counts, or None."""
        try:
            response = yield from self._connection.get(path("queues", name))
        except QueueNotFound:
            return None
        return decode(response, Queue)

    @call
    def find(self, *, limit: int = 100, after: str | None = None) -> Procedure[QueuePage]:
        """All queues, by name, one page at a time: `after=page.next` continues."""
        response = yield from self._connection.get(path("queues"), {"limit": limit, "after": after})
        return decode(response, QueuePage)

    @call
    def delete(self, name: str, *, force: bool = False) -> Procedure[bool]:
        """Delete a queue; False if there is none. A queue with jobs needs `force`."""
        query = {"force": "true"} if force else {}
        try:
            yield from self._connection.delete(path("queues", name), query)
        except QueueNotFound:
            return False
        return True

    @call
    def pause(self, name: str) -> Procedure[None]:
        """Start no more jobs of a queue. Running jobs continue."""
        yield from self._connection.post(path("queues", name, "pause"))

    @call
    def resume(self, name: str) -> Procedure[None]:
        """Start jobs of a paused queue again."""
        yield from self._connection.post(path("queues", name, "resume"))

    @call
    def rotate_secret(
        self, name: str, *, secret: str | None = None, overlap: timedelta = OVERLAP
    ) -> Procedure[str | None]:
        """Sign pushes with a new secret and return it. The old one also signs during `overlap`."""
        body = wire_body({"signing_secret": secret, "overlap": overlap})
        response = yield from self._connection.post(path("queues", name, "secret"), body)
        return decode(response, QueueSecrets).signing_secret


class ClientKeys(HttpCalls[Mode]):
    """The keys of a server: end a claim, list keys, and change them as an operator."""

    @call
    def settle(self, claim: Claim, result: Any = None) -> Procedure[None]:
        """Store the result of a claim; `LeaseLost` if another attempt holds the key."""
        claims = HttpClaims(self._connection, self._runtime)
        yield from claims.settle(checked_claim(claim), encode_result(result))

    @call
    def release(self, claim: Claim) -> Procedure[bool]:
        """Release a claim unsettled; False if another attempt holds the key."""
        return (yield from HttpClaims(self._connection, self._runtime).release(claim))

    @call
    def renew(self, claim: Claim, *, lease: timedelta = LEASE) -> Procedure[datetime | None]:
        """Extend a lease that has not ended, with the same fence; None if it has ended."""
        return (yield from HttpClaims(self._connection, self._runtime).renew(claim, lease))

    @call
    def find(
        self, *, limit: int = 50, after: str | None = None, **filters: Unpack[KeyFilters]
    ) -> Procedure[KeyPage]:
        """Stored keys, by surface, scope and key, one page at a time; without their results."""
        checks.options(filters, KeyFilters.__optional_keys__)
        query = {**filters, "limit": limit, "after": after}
        response = yield from self._connection.get(path("keys"), query)
        return decode(response, KeyPage)

    @call
    def why(
        self,
        key: str,
        *,
        surface: str | None = None,
        scope: str | None = None,
        fingerprint: str | None = None,
        payload: Any = msgspec.UNSET,
    ) -> Procedure[Why]:
        """Why a request was deduplicated: the holders of its key, and their duplicates."""
        query = {"key": key, "surface": surface, "scope": scope, "fingerprint": fingerprint}
        if payload is not msgspec.UNSET:
            query["payload"] = bytes(json_value(payload, "payload")).decode()
        response = yield from self._connection.get(path("why"), query)
        return decode(response, Why)

    @call
    def force_settle(
        self,
        scope: str,
        key: str,
        result: Any = None,
        *,
        surface: str = SURFACE,
        step: str | None = None,
    ) -> Procedure[bool]:
        """Settle a key as an operator. Its holder can no longer change it."""
        body = wire_body({"scope": scope, "result": result, "step": step})
        response = yield from self._connection.post(path("keys", surface, key, "settle"), body)
        return decode(response, ChangeReply).settled

    @call
    def force_release(
        self, scope: str, key: str, *, surface: str = SURFACE, step: str | None = None
    ) -> Procedure[bool]:
        """Release a key as an operator. Its holder can no longer change it."""
        return (yield from self._force_release(scope, key, surface=surface, step=step))

    @call
    def unlock(self, name: str) -> Procedure[bool]:
        """Release a lock as an operator. Its holder loses it."""
        return (yield from self._force_release("", lock_key(name), surface="lock"))

    def _force_release(
        self, scope: str, key: str, *, surface: str, step: str | None = None
    ) -> Procedure[bool]:
        body = wire_body({"scope": scope, "step": step})
        response = yield from self._connection.post(path("keys", surface, key, "release"), body)
        return decode(response, ChangeReply).released


class ClientSchedules(HttpCalls[Mode]):
    """The schedules of a server."""

    @call
    def save(
        self,
        name: str,
        cron: str,
        *,
        kind: str,
        payload: Json = EMPTY,
        **options: Unpack[ScheduleOptions],
    ) -> Procedure[Schedule]:
        """Enqueue a job at every tick of a cron expression: create or change a schedule.

        Saving the same schedule again changes nothing. A new expression or time zone counts from
        now.
        """
        checks.options(options, ScheduleOptions.__optional_keys__)
        body = {
            "cron": cron,
            "kind": kind,
            "payload": json_value(payload, "payload"),
            **wire_body(options),
        }
        response = yield from self._connection.put(path("schedules", name), body)
        return decode(response, Schedule)

    @call
    def find(self) -> Procedure[list[Schedule]]:
        """All schedules, by name."""
        found: list[Schedule] = []
        after: str | None = None
        while True:
            response = yield from self._connection.get(path("schedules"), {"after": after})
            page = decode(response, SchedulePage)
            found += page.schedules
            after = page.next
            if after is None:
                return found

    @call
    def delete(self, name: str) -> Procedure[bool]:
        """Delete a schedule; its jobs stay. False if there is none.

        If the response to a first try was lost, False may mean that this call deleted it.
        """
        try:
            yield from self._connection.delete(path("schedules", name))
        except ScheduleNotFound:
            return False
        return True

    @call
    def pause(self, name: str) -> Procedure[bool]:
        """Pause a schedule. False if it was paused before."""
        response = yield from self._connection.post(path("schedules", name, "pause"))
        return not decode(response, ChangeReply).already

    @call
    def resume(self, name: str) -> Procedure[bool]:
        """Continue a schedule from now, without its missed ticks. False if it was not paused."""
        response = yield from self._connection.post(path("schedules", name, "resume"))
        return not decode(response, ChangeReply).already


class ClientDead(HttpCalls[Mode]):
    """The dead jobs of one queue, `queue=`."""

    @call
    def replay(
        self, *, fresh: bool = False, limit: int | None = None, **filters: Unpack[FindOptions]
    ) -> Procedure[EnqueuedMany[Any]]:
        """Replay dead jobs by filter. Safe to repeat."""
        place, query = _dead_jobs(filters, "dead", "replay")
        replayed: list[Enqueued[Any]] = []
        after: str | None = None
        while True:
            most = _most(limit, len(replayed))
            body = {**query, **wire_body({"fresh": fresh or None, "limit": most, "after": after})}
            response = yield from self._connection.post(place, body)
            many: EnqueuedMany[Any] = decode(response, EnqueuedMany)
            replayed += many.items
            after = many.next
            if after is None or (limit is not None and len(replayed) >= limit):
                return EnqueuedMany.of(replayed)

    @call
    def delete(self, *, limit: int | None = None, **filters: Unpack[FindOptions]) -> Procedure[int]:
        """Delete dead jobs by filter, and return how many. Safe to repeat.

        If a response was lost, the jobs of that request are not counted: more than `limit` may
        have been deleted.
        """
        place, query = _dead_jobs(filters, "dead")
        deleted = 0
        while True:
            try:
                response = yield from self._connection.delete(
                    place, {**query, "limit": _most(limit, deleted)}
                )
            except QueueNotFound:
                if deleted:  # The queue itself is deleted, and these were its last jobs.
                    return deleted
                raise
            reply = decode(response, ChangeReply)
            deleted += reply.deleted
            if not reply.more or (limit is not None and deleted >= limit):
                return deleted


def _dead_jobs(filters: FindOptions, *parts: str) -> tuple[str, dict[str, Any]]:
    """The path of the dead jobs of a queue, and the other filters."""
    query = find_query(filters)
    if query.pop("state", "dead") != "dead":
        raise InvalidInput("state", "must be dead: over HTTP, only dead jobs have calls by filter")
    return path("queues", query.pop("queue", ""), *parts), query


def find_query(filters: FindOptions) -> dict[str, Any]:
    """Filters of jobs as a query."""
    checks.options(filters, FindOptions.__optional_keys__)
    return wire_body(filters)


def _most(limit: int | None, done: int) -> int | None:
    """How many jobs the next request handles; None is the server's own number."""
    if limit is None:
        return None
    if type(limit) is not int or limit < 1:
        raise InvalidInput("limit", f"must be a whole number from 1, got {limit!r}")
    return min(limit - done, DEAD_JOBS)


class ClientStatistics(HttpCalls[Mode]):
    """What has happened on a server lately."""

    @call
    def read(
        self, *, last: timedelta = LAST, width: timedelta = WIDTH, queue: str | None = None
    ) -> Procedure[Statistics]:
        """Completed, failed and suppressed work, times and backlog, in buckets of `width`."""
        seconds = {"last": last // SECOND, "width": width // SECOND}
        query = {**seconds, "queue": queue}
        response = yield from self._connection.get(path("statistics"), query)
        return decode(response, Statistics)


class ClientWorkers(HttpCalls[Mode]):
    """The workers of a server. They need an API key with the scope `admin` and no tenant."""

    @call
    def find(self) -> Procedure[tuple[WorkerStatus, ...]]:
        """All workers, by name."""
        response = yield from self._connection.get(path("workers"))
        return decode(response, WorkerList).items


class _WaitingJob(msgspec.Struct):
    waiting: Waiting | None


class ClientDeliveries(HttpCalls[Mode]):
    """Deliveries of jobs to your worker. A `fence` names one; without it, the current one."""

    @call
    def why(self, job_id: str) -> Procedure[Waiting | None]:
        """Why a job waits: a code, a text and facts. None if it runs or has ended."""
        response = yield from self._connection.get(path("jobs", job_id))
        return decode(response, _WaitingJob).waiting

    @call
    def attempts(self, job_id: str) -> Procedure[list[Attempt]]:
        """The deliveries of a job, newest last."""
        response = yield from self._connection.get(path("jobs", job_id, "attempts"))
        return list(decode(response, AttemptList).items)

    @call
    def acknowledge(
        self, job_id: str, *, fence: int | None = None, result: Json = None
    ) -> Procedure[Ended]:
        """Complete a delivery."""
        return (yield from self._end(job_id, "ack", {"fence": fence, "result": result}))

    @call
    def nack(
        self,
        job_id: str,
        *,
        retryable: bool = True,
        reason: str | None = None,
        fence: int | None = None,
    ) -> Procedure[Ended]:
        """Fail a delivery. The job is retried after its backoff, or dead if not `retryable`."""
        body = {"fence": fence, "retryable": retryable, "reason": reason}
        return (yield from self._end(job_id, "nack", body))

    @call
    def defer_job(
        self,
        job_id: str,
        *,
        after: timedelta,
        reason: str | None = None,
        fence: int | None = None,
        hold_queue: bool = False,
    ) -> Procedure[Ended]:
        """Run a job later, without using an attempt. `hold_queue` defers the whole queue."""
        scope = "queue" if hold_queue else "job"
        body = {"fence": fence, "retry_after": after, "reason": reason, "scope": scope}
        return (yield from self._end(job_id, "defer", body))

    @call
    def heartbeat_job(
        self, job_id: str, *, lease: timedelta | None = None, fence: int | None = None
    ) -> Procedure[Ended]:
        """Extend the lease of a delivery by its own length, or by `lease`."""
        return (yield from self._end(job_id, "heartbeat", {"fence": fence, "lease": lease}))

    def _end(self, job_id: str, action: str, members: dict[str, Any]) -> Procedure[Ended]:
        response = yield from self._connection.post(
            path("jobs", job_id, action), wire_body(members)
        )
        return decode(response, Ended)
