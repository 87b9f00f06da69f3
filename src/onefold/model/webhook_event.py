"""Events about webhooks. None of them has a secret, a signature or a body."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

WebhookOutcome: TypeAlias = Literal[
    "processed", "enqueued", "failed", "refused", "busy", "unavailable"
]


class WebhookReceived(msgspec.Struct, frozen=True):
    """An event with a good signature came in, and was no duplicate."""

    provider: str
    endpoint: str
    outcome: WebhookOutcome
    event_type: str | None = None
    secret_id: str = ""
    """Which secret it was signed with."""
    old_secret: bool = False
    """True where that is not the current one: the sender has not changed over yet."""
    tenant: str = ""


class WebhookDuplicate(msgspec.Struct, frozen=True):
    """An event came in that was processed before: it had no effect."""

    provider: str
    endpoint: str
    event_type: str | None = None
    by: Literal["id", "second key"] = "id"
    tenant: str = ""


class WebhookRejected(msgspec.Struct, frozen=True):
    """A request was refused before anything was stored, and its sender was not told why."""

    provider: str
    endpoint: str
    code: str
    """`too_old` and `too_new` tell a clock that is wrong from a forgery; see `BadSignature`."""
    tenant: str = ""


class WebhookAlarm(msgspec.Struct, frozen=True):
    """Something that an honest sender does not do: have a look."""

    provider: str
    endpoint: str
    reason: Literal["id reused", "body replayed", "outcome unknown"]
    id: str
    tenant: str = ""


WebhookEvent: TypeAlias = WebhookReceived | WebhookDuplicate | WebhookRejected | WebhookAlarm
