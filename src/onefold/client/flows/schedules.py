"""Schedules over HTTP: make, look, pause, resume, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from onefold.client import wire
from onefold.client.flow import delete as delete_request
from onefold.client.flow import get, place, post, put
from onefold.client.schedule import RemoteSchedule, RemoteScheduleOptions
from onefold.errors import ScheduleNotFound
from onefold.model import checks
from onefold.model.job import NewJob
from onefold.model.json_text import encode_payload

if TYPE_CHECKING:
    from onefold.client.flow import Ask, Flow
    from onefold.model.job import Json

QUEUE: Final = NewJob("kind").queue
DURATIONS: Final = ("delay", "unique_for")


class ToldSchedules(wire.Said, frozen=True, kw_only=True):
    """All there are."""

    items: tuple[RemoteSchedule, ...] = ()


class ToldChange(wire.Said, frozen=True, kw_only=True):
    """Whether there was anything to change."""

    already: bool = False


def save(
    ask: Ask, name: str, cron: str, *, kind: str, payload: Json, options: RemoteScheduleOptions
) -> Flow[RemoteSchedule]:
    """Make a schedule, or change the one of that name."""
    checks.options(options, RemoteScheduleOptions.__optional_keys__)
    said: dict[str, Any] = {"queue": QUEUE, **options}
    for field in DURATIONS:
        said[field] = wire.seconds(said.get(field), field)
    if said.get("metadata") is not None:
        said["metadata"] = msgspec.Raw(encode_payload(said["metadata"]).encode())
    said["tags"] = checks.listed(said.get("tags", ()), "tags", "text")
    said["cron"] = checks.text(cron, "cron")
    said["kind"] = checks.name(kind, "kind")
    said["payload"] = msgspec.Raw(encode_payload(payload).encode())
    reply = yield from ask(put(_place(name), wire.said(said)))
    return wire.read(reply, RemoteSchedule)


def find(ask: Ask) -> Flow[list[RemoteSchedule]]:
    """All of them, by name."""
    reply = yield from ask(get(place("schedules")))
    return list(wire.read(reply, ToldSchedules).items)


def remove(ask: Ask, name: str) -> Flow[bool]:
    """Remove a schedule."""
    try:
        yield from ask(delete_request(_place(name)))
    except ScheduleNotFound:
        return False
    return True


def say(ask: Ask, name: str, word: Literal["pause", "resume"]) -> Flow[bool]:
    """Pause, or resume; whether that has changed anything."""
    reply = yield from ask(post(f"{_place(name)}/{word}"))
    return not wire.read(reply, ToldChange).already


def _place(name: str) -> str:
    return place("schedules", checks.name(name, "name"))
