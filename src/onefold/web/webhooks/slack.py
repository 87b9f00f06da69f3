"""Slack: `X-Slack-Signature: v0=…`, over the timestamp and the body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onefold.web.webhooks import provider
from onefold.web.webhooks.provider import BadSignature, TimedProvider
from onefold.web.webhooks.webhook_event import Verified

if TYPE_CHECKING:
    from datetime import datetime

    from onefold.web.http import HttpRequest


class Slack(TimedProvider, frozen=True):
    """Slack's events, interactions and commands. An event is known by its `event_id`."""

    name: ClassVar[str] = "slack"
    mistaken: ClassVar[dict[str, str]] = {"xox": "a token", "xapp-": "a token"}
    wanted: ClassVar[str] = "the signing secret of the app (Basic Information, App Credentials)"
    kept: ClassVar[tuple[str, ...]] = (
        "x-slack-request-timestamp",
        "x-slack-retry-num",
        "x-slack-retry-reason",
    )
    no_retry: ClassVar[tuple[tuple[str, str], ...]] = (("X-Slack-No-Retry", "1"),)

    def read(self, request: HttpRequest, body: bytes, now: datetime) -> Verified:
        """Check the signature."""
        stamp = provider.header(request, "x-slack-request-timestamp")
        given = provider.header(request, "x-slack-signature")
        if not given.startswith("v0="):
            raise BadSignature("no_usable_scheme", header="x-slack-signature")
        signed_at = self.signed_at(stamp, now)
        digits = given.removeprefix("v0=")
        content = b"v0:%s:%s" % (stamp.encode(), body)
        secret = self.matching(now, lambda key: provider.is_hex(provider.mac(key, content), digits))
        wrapped = provider.payload(request, body)
        event = provider.json_object(body if wrapped is None else wrapped)
        return Verified(
            provider=self.name,
            id=provider.text_of(event.get("event_id")) or "",
            secret_id=secret.id,
            body=body,
            content=wrapped,
            event_type=_type(event),
            timestamp=signed_at,
            occurred_at=provider.moment_of(event.get("event_time")),
        )

    def challenge(self, verified: Verified) -> str | None:
        """The challenge of Slack's url_verification, which is not an event."""
        event = provider.json_object(verified.event)
        if event.get("type") != "url_verification":
            return None
        return provider.text_of(event.get("challenge"))


def _type(event: dict[str, Any]) -> str | None:
    """The type of the event; else the type of the request."""
    inner = provider.members(event.get("event"))
    return provider.text_of(inner.get("type")) or provider.text_of(event.get("type"))
