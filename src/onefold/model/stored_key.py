"""A stored key, as its operator sees it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from onefold.errors import InvalidInput
from onefold.model.claim import TAKEOVERS, Takeover, decode_result
from onefold.model.moment import from_micros

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KeyState: TypeAlias = Literal["held", "settled", "free", "unknown", "abandoned", "expired"]

KEY_STATES: Final[tuple[KeyState, ...]] = (
    "held", "settled", "free", "unknown", "abandoned", "expired",
)  # fmt: skip


class StoredKey(msgspec.Struct, frozen=True):
    """A key, who has it and since when, and what became of it."""

    tenant: str
    surface: str
    """`http`, `webhook`, `form`, `once`, `publish`, `lock`, or one of the application's own."""
    scope: str
    """Whose it is, or what for: the principal of a request, the name of a `once`."""
    key: str
    state: KeyState
    """`unknown`: its attempt has vanished, and nobody may run it before somebody has looked.
    `abandoned`: the same, and the next attempt takes it over. `expired` counts as absent."""
    fence: int
    takeover: Takeover
    since: datetime
    """When it was claimed."""
    lease_until: datetime | None
    settled_at: datetime | None
    expires_at: datetime | None
    """When it is forgotten; None: not by itself."""
    result: Any = None
    """What is stored with it; only where it was asked for."""

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> StoredKey:
        """A row of find_keys."""
        tenant, surface, scope, key, state, fence, takeover, since = row[:8]
        lease_until, settled_at, expires_at, result = row[8:]
        return cls(
            tenant=tenant,
            surface=surface,
            scope=scope,
            key=key,
            state=state,
            fence=fence,
            takeover=TAKEOVERS[int(takeover)],
            since=from_micros(since),
            lease_until=_moment(lease_until),
            settled_at=_moment(settled_at),
            expires_at=_moment(expires_at),
            # The result of a publish key is the id of its job, which is no JSON.
            result=result if surface == "publish" else decode_result(result),
        )

    @property
    def place(self) -> tuple[str, str, str]:
        """Where it is in a list."""
        return (self.surface, self.scope, self.key)


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


class KeyPage(msgspec.Struct, frozen=True):
    """Some keys, and the cursor that continues after them."""

    keys: tuple[StoredKey, ...]
    next: str | None = None
    """Give it as `after=` for the next page; None on the last."""

    def __iter__(self) -> Iterator[StoredKey]:
        """The keys of this page."""
        return iter(self.keys)

    def __len__(self) -> int:
        """How many keys this page has."""
        return len(self.keys)


def cursor(place: tuple[str, str, str]) -> str:
    """The cursor that continues after a place."""
    return json.dumps(place, ensure_ascii=False)


def after(text: object) -> tuple[str, str, str]:
    """The place that a cursor continues after; the very beginning without one."""
    if text is None:
        return ("", "", "")
    try:
        place = msgspec.json.decode(str(text), type=tuple[str, str, str])
    except msgspec.MsgspecError:
        place = None
    # PostgreSQL takes no NUL, so there is none in a key either.
    if place is None or any("\0" in part for part in place):
        raise InvalidInput("after", f"must be the `next` of a page, got {text!r}")
    return place
