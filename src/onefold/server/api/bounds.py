"""Values that bodies and queries have in common, with their bounds."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeAlias

from msgspec import Meta

from onefold.model.request import ATTEMPTS, PRIORITIES

Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
"""ISO 8601 with a time zone."""
Attempts: TypeAlias = Annotated[int, Meta(ge=ATTEMPTS[0], le=ATTEMPTS[-1])]
Priority: TypeAlias = Annotated[int, Meta(ge=PRIORITIES[0], le=PRIORITIES[-1])]
Yes: TypeAlias = Annotated[bool, Meta(extra_json_schema={"const": True})]
"""True, always. An answer has it because SimpleQ's SDK reads it."""
Fence: TypeAlias = Annotated[int, Meta(ge=1, le=2**63 - 1)]
