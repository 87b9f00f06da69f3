"""The options of a worker, checked."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, TypeAlias, TypedDict

import msgspec

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model import checks
from onefold.model.timestamps import seconds, span

Queues: TypeAlias = Sequence[str] | Mapping[str, int | None]

MOST: Final = 10_000
AHEAD: Final = 400
"""Jobs that any worker may hold in advance, where they end quickly enough."""
LEAST: Final = timedelta(milliseconds=1)
LEASE: Final = timedelta(seconds=30)
"""Of workers that run jobs and of those that push them."""
GRACE: Final = timedelta(seconds=30)


class WorkerOptions(TypedDict, total=False):
    """The options of `Onefold.worker`; see `WorkerSettings`."""

    queues: Queues | None
    concurrency: int
    prefetch: int | None
    lease: timedelta
    heartbeat: timedelta | None
    poll: timedelta
    grace: timedelta
    name: str | None
    chores: bool


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a worker."""

    queues: Mapping[str, int | None]
    """In the order they are served, each with the maximum that this worker runs at once.

    Empty until the start of a worker that serves the declared queues."""
    concurrency: int
    """Handlers that run at once."""
    prefetch: int | None
    """Jobs taken in advance; None for as many as end during one round trip to the database."""
    lease: timedelta
    """How long a job is reserved for this worker without a heartbeat."""
    heartbeat: timedelta
    poll: timedelta
    """How often an idle worker looks for jobs without a notification."""
    grace: timedelta
    """How long stopping may take."""
    name: str
    """The name of this worker in attempts and logs."""
    chores: bool
    """Whether it also does maintenance: rescue, prune, sweep, and ticks of schedules."""
    rotates: bool = False
    """Serve queues in turn (round-robin) instead of in their order."""
    spread: int | None = None
    """Limits a queue to a fraction of the free places, so that others find some: half of them for
    2. None for no such limit."""

    @property
    def most_prefetched(self) -> int:
        """The upper limit where the worker chooses the number itself."""
        return max(AHEAD, 2 * self.concurrency) if self.prefetch is None else self.prefetch


def worker_settings(options: WorkerOptions) -> WorkerSettings:
    """Check the options and fill in the defaults."""
    checks.options(options, WorkerOptions.__optional_keys__)
    concurrency = _whole(options.get("concurrency", 20), "concurrency", least=1)
    prefetch = options.get("prefetch")
    lease = options.get("lease", LEASE)
    heartbeat = options.get("heartbeat")
    span(lease, "lease", least=timedelta(milliseconds=100))
    beat = lease / 4 if heartbeat is None else heartbeat
    span(beat, "heartbeat", least=LEAST)
    if beat * 2 > lease:
        raise ConflictingOptions(
            "heartbeat",
            f"must be at most half of the lease ({seconds(lease)}), got {seconds(beat)}",
        )
    poll, grace = options.get("poll", timedelta(seconds=5)), options.get("grace", GRACE)
    span(poll, "poll", least=LEAST)
    span(grace, "grace", least=LEAST)
    name = options.get("name")
    return WorkerSettings(
        queues={} if (queues := options.get("queues")) is None else _queues(queues),
        concurrency=concurrency,
        prefetch=None if prefetch is None else _whole(prefetch, "prefetch", least=0),
        lease=lease,
        heartbeat=beat,
        poll=poll,
        grace=grace,
        name=worker_name() if name is None else checks.key(name, "name"),
        chores=checks.flag(options.get("chores", True), "chores"),
    )


def worker_name() -> str:
    """A unique name: host, process id and random digits."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def read_queues(text: str) -> dict[str, int | None]:
    """Parse `email,default:5` or `email default:5`: names, some with a maximum.

    A name may contain colons: the last one is before the maximum, or at the end if there is none.
    """
    wanted: dict[str, int | None] = {}
    for part in re.split(r"\s*,\s*|\s+", text.strip()):
        if not part:
            raise InvalidInput(
                "queues", f"must be names with commas or spaces between them, got {text!r}"
            )
        name, colon, maximum = part.rpartition(":")
        if maximum and colon and not re.fullmatch(r"[0-9]{1,9}", maximum):
            raise InvalidInput(
                "queues",
                f"must have a number after the colon, as in {name}:5, got {part!r}. If this is the"
                f" name of a queue, write '{part}:'",
            )
        queue, limit = (name, int(maximum) if maximum else None) if colon else (part, None)
        if queue in wanted:
            raise InvalidInput("queues", f"must name each queue once, got {text!r}")
        wanted[queue] = limit
    return wanted


def _queues(queues: Queues) -> dict[str, int | None]:
    wanted: dict[str, int | None] = {}
    if isinstance(queues, Mapping):
        for queue, most in queues.items():
            name = checks.queue(queue, "queues")
            wanted[name] = None if most is None else _whole(most, f"queues[{name!r}]", least=1)
    else:
        listed = checks.listed(queues, "queues", "names")
        wanted.update((checks.queue(queue, "queues"), None) for queue in listed)
    if not wanted:
        raise InvalidInput("queues", "must name at least one queue")
    return wanted


def _whole(value: object, field: str, *, least: int) -> int:
    if type(value) is not int or not least <= value <= MOST:
        raise InvalidInput(field, f"must be a whole number from {least} to {MOST}, got {value!r}")
    return value
