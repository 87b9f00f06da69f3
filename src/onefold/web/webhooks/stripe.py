"""Stripe: `Stripe-Signature: t=…,v1=…`, over the timestamp and the body.

The secret is used as it stands, `whsec_` included: it is not decoded, unlike that of Standard
Webhooks, which looks the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from onefold.web.webhooks import provider
from onefold.web.webhooks.provider import (
    MOST_SIGNATURES,
    BadSignature,
    TimedProvider,
    TooManySignatures,
)
from onefold.web.webhooks.webhook_event import Verified

if TYPE_CHECKING:
    from datetime import datetime

    from onefold.web.http import HttpRequest


class Stripe(TimedProvider, frozen=True):
    """Stripe's webhooks: `Stripe("whsec_…")`."""

    name: ClassVar[str] = "stripe"
    mistaken: ClassVar[dict[str, str]] = {
        "sk_": "a secret API key",
        "rk_": "a restricted API key",
        "pk_": "a publishable API key",
        "we_": "the id of a webhook endpoint",
    }
    wanted: ClassVar[str] = (
        "the signing secret of the endpoint, which begins with whsec_ (in the dashboard under"
        " Webhooks, or as `stripe listen` prints it)"
    )

    def read(self, request: HttpRequest, body: bytes, now: datetime) -> Verified:
        """Check the signatures of scheme v1, of which one must fit."""
        stamp, signatures = _parsed(provider.header(request, "stripe-signature"))
        signed_at = self.signed_at(stamp, now)
        content = b"%s.%s" % (stamp.encode(), body)

        def fits(key: bytes) -> bool:
            expected = provider.mac(key, content)
            return any(provider.is_hex(expected, one) for one in signatures)

        secret = self.matching(now, fits)
        event = provider.json_object(body)
        return Verified(
            provider=self.name,
            id=provider.text_of(event.get("id")) or "",
            secret_id=secret.id,
            body=body,
            event_type=provider.text_of(event.get("type")),
            timestamp=signed_at,
            occurred_at=provider.moment_of(event.get("created")),
            digest=_digest(event, body),
        )


def _parsed(header: str) -> tuple[str, list[str]]:
    """The one timestamp, and the signatures of scheme v1. Other schemes are ignored, v0 too."""
    parts = [part.strip().partition("=") for part in header.split(",")]
    stamps = [value for name, _, value in parts if name == "t"]
    signatures = [value for name, _, value in parts if name == "v1" and value]
    if len(parts) - len(stamps) > MOST_SIGNATURES:
        raise TooManySignatures("stripe-signature")
    if len(stamps) != 1:
        raise BadSignature("header_malformed", header="stripe-signature")
    if not signatures:
        raise BadSignature("no_usable_scheme", header="stripe-signature")
    return stamps[0], signatures


def _digest(event: dict[str, Any], body: bytes) -> str:
    """Without `pending_webhooks`, the number of deliveries in progress: it may change."""
    if "pending_webhooks" not in event:
        return provider.sha256(body)
    rest = {name: value for name, value in event.items() if name != "pending_webhooks"}
    return provider.sha256(msgspec.json.encode(rest, order="sorted"))


def changed_object(verified: Verified) -> str | None:
    """The object that an event of Stripe is about, with the event's type: a second key.

    Stripe may send two events for one change. `SecondKey(changed_object)` processes one of them.
    """
    data = provider.members(provider.json_object(verified.event).get("data"))
    object_id = provider.text_of(provider.members(data.get("object")).get("id"))
    return None if object_id is None else f"{verified.event_type}:{object_id}"
