"""What a server may be told."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from onefold.errors import InvalidInput

MEBIBYTE: Final = 1024 * 1024


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a server, and what it may do."""

    max_body: int = 4 * MEBIBYTE
    """Bytes of a request's body."""
    request_timeout: timedelta = timedelta(seconds=30)
    """How long a request may take from its first byte to its answer."""
    body_timeout: timedelta = timedelta(seconds=15)
    """How long a client may take to send a body: a slow one must not hold a place."""
    grace: timedelta = timedelta(seconds=30)
    """How long a stop may take."""
    anonymous: bool = False
    """Whether a caller without a key is let in while no key exists. Only for loopback."""
    push: bool = True
    """Whether this process pushes jobs, and rescues, prunes and ticks."""
    push_concurrency: int = 200
    """Pushes at once, in this process."""
    push_allow: tuple[str, ...] = ()
    """Networks and hosts that jobs may be pushed to though they are private: `10.0.0.0/8`."""
    access_log: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in ("max_body", "push_concurrency"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, f"must be at least 1, got {getattr(self, name)!r}")
        for name in ("request_timeout", "body_timeout", "grace"):
            if getattr(self, name) <= timedelta(0):
                raise InvalidInput(name, f"must be longer than 0, got {getattr(self, name)}")
