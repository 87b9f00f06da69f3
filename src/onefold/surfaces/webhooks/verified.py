"""What is known of a request whose signature is good."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from onefold.surfaces.webhooks.reading import sha256


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """An event, and what of it the signature covers."""

    provider: str
    id: str
    """By which it is known again: the sender's id, or a digest where it gives none."""
    signed_id: bool
    """Whether the signature covers the id. Where not, anybody who has seen the event can send it
    again under another."""
    secret_id: str
    """Which secret it was signed with."""
    body: bytes
    """As it was received."""
    content: bytes | None = None
    """The event itself, where the body wraps it (GitHub's and Slack's forms)."""
    event_type: str | None = None
    timestamp: datetime | None = None
    """When it was signed, where the signature covers that."""
    occurred_at: datetime | None = None
    """When it happened, by its own word; a redelivery says the same."""
    key: str | None = None
    """What makes it one, where the id is not enough: Shopify's shop, topic and event."""
    digest: str = ""
    """Of what must be the same in a redelivery."""
    guard: str | None = None
    """A digest by which a replay under another id is known; None where the id is signed."""
    old_secret: bool = False
    """Whether the secret is not the current one: rotate on."""

    def __post_init__(self) -> None:
        """Say what follows from the body."""
        if not self.digest:
            msgspec.structs.force_setattr(self, "digest", sha256(self.body))

    @property
    def event(self) -> bytes:
        """The event itself: the body, or what it wraps."""
        return self.body if self.content is None else self.content

    def json(self) -> Any:
        """The event, decoded. A body that is no JSON raises `msgspec.DecodeError`."""
        return msgspec.json.decode(self.event)

    def __repr__(self) -> str:
        """Without the body: this may be logged."""
        return f"Verified(provider={self.provider!r}, id={self.id!r}, type={self.event_type!r})"
