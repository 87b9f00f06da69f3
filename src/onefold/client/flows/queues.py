"""Queues over HTTP: make, look, pause, remove, and change their secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onefold.client import wire
from onefold.client.errors import QueueNotFound
from onefold.client.flow import delete as delete_request
from onefold.client.flow import get, place, post, put
from onefold.client.queue import QueueOptions, RemoteQueue, RemoteQueues
from onefold.model import checks

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.client.flow import Ask, Flow

DURATIONS: Final = ("timeout", "ack_timeout")


class ToldSecret(wire.Said, frozen=True, kw_only=True):
    """What signs now."""

    signing_secret: str


def save(ask: Ask, name: str, options: QueueOptions) -> Flow[RemoteQueue]:
    """Make a queue, or say anew what holds for it."""
    checks.options(options, QueueOptions.__optional_keys__)
    said: dict[str, Any] = dict(options)
    for field in DURATIONS:
        if field in said:
            said[field] = wire.seconds(said[field], field)
    said["backoff"] = wire.backoff(said.get("backoff"))
    said["retention"] = wire.retention(said.get("retention"))
    said["rate_limit"] = said.pop("rate", None)
    reply = yield from ask(put(_place(name), wire.said(said)))
    return wire.read(reply, RemoteQueue)


def look(ask: Ask, name: str) -> Flow[RemoteQueue | None]:
    """A queue, or None."""
    try:
        reply = yield from ask(get(_place(name)))
    except QueueNotFound:
        return None
    return wire.read(reply, RemoteQueue)


def find(ask: Ask, *, limit: int, after: str | None) -> Flow[RemoteQueues]:
    """A page of them."""
    reply = yield from ask(get(place("queues"), {"limit": limit, "after": after}))
    return wire.read(reply, RemoteQueues)


def delete(ask: Ask, name: str, *, force: bool) -> Flow[bool]:
    """Remove a queue."""
    query = {"force": "true"} if checks.flag(force, "force") else None
    try:
        yield from ask(delete_request(_place(name), query))
    except QueueNotFound:
        return False
    return True


def say(ask: Ask, name: str, word: str) -> Flow[None]:
    """Pause, or resume."""
    yield from ask(post(f"{_place(name)}/{word}"))


def rotate(ask: Ask, name: str, secret: str | None, overlap: timedelta) -> Flow[str]:
    """Sign with a new secret; answers with it."""
    said = {"signing_secret": secret, "overlap": wire.seconds(overlap, "overlap")}
    reply = yield from ask(post(f"{_place(name)}/secret", wire.said(said)))
    return wire.read(reply, ToldSecret).signing_secret


def _place(name: str) -> str:
    return place("queues", checks.name(name, "name"))
