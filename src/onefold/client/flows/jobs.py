"""Look at jobs, cancel, replay and delete them, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onefold.calls.jobs import FindOptions
from onefold.client import wire
from onefold.client.errors import QueueNotFound
from onefold.client.flow import delete as delete_request
from onefold.client.flow import get, place, post
from onefold.client.jobs import RemoteJob, RemotePage, state_of
from onefold.errors import InvalidInput, JobNotFound
from onefold.model import checks
from onefold.model.checks import REASON_BYTES
from onefold.model.ids import parse_id
from onefold.model.job import Enqueued, EnqueuedMany

if TYPE_CHECKING:
    from onefold.client.flow import Ask, Flow

REPLAYED: Final = 1000
"""Dead letters of one request."""

TIMES: Final = ("created_from", "created_before", "ended_from", "ended_before")


class Replayed(wire.Said, frozen=True, kw_only=True):
    """What the server answers for one replayed job."""

    id: str
    duplicate: bool = False
    state: str | None = "queued"

    def enqueued(self) -> Enqueued[Any]:
        """As an in-process replay answers."""
        state = None if self.state is None else state_of(self.state)
        return Enqueued(self.id, duplicate=self.duplicate, state=state)


class ReplayedMany(wire.Said, frozen=True, kw_only=True):
    """What the server answers for many."""

    items: tuple[Replayed, ...] = ()
    next: str | None = None


class Deleted(wire.Said, frozen=True, kw_only=True):
    """How many letters are gone, and whether there may be more."""

    deleted: int = 0
    more: bool = False


class Cancelled(wire.Said, frozen=True, kw_only=True):
    """What the server answers to a cancel."""

    already: bool = False


def look(ask: Ask, job_id: str) -> Flow[RemoteJob | None]:
    """A job, or None."""
    wanted = parse_id(job_id)
    try:
        reply = yield from ask(get(place("jobs", wanted)))
    except JobNotFound:
        return None
    return wire.read(reply, RemoteJob)


def find(
    ask: Ask,
    filters: FindOptions,
    *,
    limit: int,
    after: str | None,
    newest_first: bool,
) -> Flow[RemotePage]:
    """Jobs by filter, a page at a time."""
    checks.flag(newest_first, "newest_first")
    query = {**_query(filters), "limit": limit, "after": after}
    if newest_first:
        query["newestFirst"] = "true"
    reply = yield from ask(get(place("jobs"), query))
    return wire.read(reply, RemotePage)


def cancel(ask: Ask, job_id: str, reason: str | None) -> Flow[bool]:
    """Stop a job."""
    why = None if reason is None else checks.text(reason, "reason", longest=REASON_BYTES)
    request = post(place("jobs", parse_id(job_id), "cancel"), wire.said({"reason": why}))
    reply = yield from ask(request)
    return not wire.read(reply, Cancelled).already


def replay(ask: Ask, job_id: str, *, fresh: bool) -> Flow[Enqueued[Any]]:
    """Send a job round again."""
    checks.flag(fresh, "fresh")
    body = {"fresh": True} if fresh else {}
    reply = yield from ask(post(place("jobs", parse_id(job_id), "replay"), body))
    return wire.read(reply, Replayed).enqueued()


def replay_many(
    ask: Ask, filters: FindOptions, *, fresh: bool, limit: int | None
) -> Flow[EnqueuedMany[Any]]:
    """Replay the dead letters of a queue, by filter: as many requests as it takes."""
    checks.flag(fresh, "fresh")
    path, said = _letters(filters, "dead", "replay")
    answers: list[Enqueued[Any]] = []
    after: str | None = None
    while True:
        left = None if limit is None else limit - len(answers)
        body = {**said, **wire.said({"fresh": fresh or None, "limit": _most(left), "after": after})}
        reply = yield from ask(post(path, body))
        told = wire.read(reply, ReplayedMany)
        answers += [one.enqueued() for one in told.items]
        after = told.next
        if after is None or (limit is not None and len(answers) >= limit):
            return EnqueuedMany(answers)


def delete_many(ask: Ask, filters: FindOptions, *, limit: int | None) -> Flow[int]:
    """Remove the dead letters of a queue, by filter: as many requests as it takes."""
    path, said = _letters(filters, "dead")
    deleted = 0
    while True:
        left = None if limit is None else limit - deleted
        try:
            reply = yield from ask(delete_request(path, {**said, "limit": _most(left)}))
        except QueueNotFound:
            if deleted:  # Its letters had outlived it.
                return deleted
            raise
        told = wire.read(reply, Deleted)
        deleted += told.deleted
        if not told.more or (limit is not None and deleted >= limit):
            return deleted


def _letters(filters: FindOptions, *parts: str) -> tuple[str, dict[str, Any]]:
    """Where the dead letters of a queue are, and which of them are meant."""
    said = _query(filters)
    queue = checks.name(said.pop("queue", None), "queue")
    if said.pop("status", "dead") != "dead":
        raise InvalidInput("status", "must be dead: over HTTP, only dead letters go by filter")
    return place("queues", queue, *parts), said


def _most(left: int | None) -> int | None:
    """How many at once: the server's own number, or what is left of the caller's."""
    if left is not None and (type(left) is not int or left < 1):
        raise InvalidInput("limit", f"must be a whole number from 1, got {left!r}")
    return None if left is None else min(left, REPLAYED)


def delete(ask: Ask, job_id: str) -> Flow[bool]:
    """Remove a job."""
    try:
        yield from ask(delete_request(place("jobs", parse_id(job_id))))
    except JobNotFound:
        return False
    return True


def _query(filters: FindOptions) -> dict[str, Any]:
    checks.options(filters, FindOptions.__optional_keys__)
    said: dict[str, Any] = dict(filters)
    for name, value in said.items():
        if name in TIMES:
            said[name] = wire.iso(value, name)
    status = said.get("status")
    if status is not None and not isinstance(status, str):
        said["status"] = checks.listed(status, "status", "words")
    return wire.said(said)
