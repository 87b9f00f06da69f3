"""What a server tells its listeners."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

GAP: Final = "gap"
"""Not everything was told: see the jobs themselves for what was missed."""


class RemoteEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event."""

    name: str
    """`jobs.enqueued`, `jobs.duplicate`, `job.started`, `job.ended`, `job.redelivered`,
    `key.answered`, `queue.counted`; or `gap`, where some were missed."""
    id: str | None = None
    """Give it as `after=` to go on behind this event; a gap has none."""
    at: datetime | None = None
    queue: str | None = None
    data: Mapping[str, Any] = {}
    """All that was said, with the names that Python has for it."""
