"""Schedules as a client sees them."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - read by msgspec
from datetime import datetime  # noqa: TC003 - read by msgspec
from typing import TYPE_CHECKING

from onefold.calls.schedules import DeclaredOptions
from onefold.client.wire import Said
from onefold.model.job import Json  # noqa: TC001 - read by msgspec
from onefold.model.schedule import CatchUp  # noqa: TC001 - read by msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from onefold.model.job import UniqueWhile


class RemoteScheduleOptions(DeclaredOptions, total=False):
    """What may be said of a schedule over HTTP. What is left out is the default, or the queue's."""

    queue: str
    """Where its jobs go; it must be there."""
    priority: int
    delay: timedelta | None
    max_attempts: int
    unique_key: str | None
    unique_while: UniqueWhile | None
    unique_for: timedelta | None
    group_key: str | None
    tags: Sequence[str]
    metadata: Mapping[str, Json] | None


class RemoteSchedule(Said, frozen=True, kw_only=True):
    """A schedule as the server told of it, under the names that `onefold.Schedule` has."""

    name: str
    cron: str
    tz: str = "UTC"
    queue: str = ""
    kind: str = ""
    payload: Json = None
    catch_up: CatchUp = "latest"
    catch_up_most: int = 0
    """With `all`, how many missed ticks are made up for: the newest."""
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
    """True where code declares it, and may change it."""
    next_tick: datetime | None = None
    """When it is due; None while it is paused."""
    last_tick: datetime | None = None
    """The newest tick that a job was enqueued for."""
    updated_at: datetime | None = None

    def __repr__(self) -> str:
        """What tells one schedule from another; the payload may be large, or nobody's business."""
        return (
            f"RemoteSchedule(name={self.name!r}, cron={self.cron!r}, tz={self.tz!r},"
            f" kind={self.kind!r}, queue={self.queue!r}, paused={self.paused})"
        )
