"""Jobs, queues and schedules in the responses of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - read by msgspec
from datetime import datetime, timedelta  # noqa: TC003 - read by msgspec

from onefold.client.requests import WireStruct
from onefold.jobs.cron_decorator import DeclaredOptions
from onefold.model.job import Json, UniqueWhile  # noqa: TC001 - read by msgspec
from onefold.model.schedule import CatchUp  # noqa: TC001 - read by msgspec


class ChangeReply(WireStruct, frozen=True, kw_only=True):
    """The response to a request that changes one thing."""

    already: bool = False
    """True if there was nothing to change."""
    released: bool = False
    settled: bool = False
    deleted: int = 0
    more: bool = False
    """True if a deletion by filter has not reached the end."""


class RemoteScheduleOptions(DeclaredOptions, total=False):
    """The settings of a schedule. An omitted one is the default, or that of the queue."""

    queue: str
    """Where its jobs go; the queue must exist."""
    priority: int
    delay: timedelta | None
    max_attempts: int
    unique_key: str | None
    unique_while: UniqueWhile | None
    unique_for: timedelta | None
    group_key: str | None
    tags: Sequence[str]
    metadata: Mapping[str, Json] | None


class RemoteSchedule(WireStruct, frozen=True, kw_only=True):
    """A schedule of a server, with the field names of `onefold.Schedule`."""

    name: str
    cron: str
    tz: str = "UTC"
    queue: str = ""
    kind: str = ""
    payload: Json = None
    catch_up: CatchUp = "latest"
    catch_up_most: int = 0
    """With `all`, how many missed ticks are enqueued: the newest."""
    priority: int = 0
    delay: float = 0.0
    """Seconds."""
    max_attempts: int = 0
    unique_key: str | None = None
    unique_while: str | None = None
    unique_for: float | None = None
    """Seconds."""
    group_key: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Json] | None = None
    paused: bool = False
    declared: bool = False
    """True if code declares it."""
    next_tick: datetime | None = None
    """When it is due; None while it is paused."""
    last_tick: datetime | None = None
    """The newest tick for which a job was enqueued."""
    updated_at: datetime | None = None

    def __repr__(self) -> str:
        # Without the payload: it may be large or confidential.
        return (
            f"RemoteSchedule(name={self.name!r}, cron={self.cron!r}, tz={self.tz!r},"
            f" kind={self.kind!r}, queue={self.queue!r}, paused={self.paused})"
        )


class RemoteSchedules(WireStruct, frozen=True, kw_only=True):
    """All schedules."""

    items: tuple[RemoteSchedule, ...] = ()
