"""Shopify: `X-Shopify-Hmac-Sha256`, base64, over the body alone.

One event is sent per subscription and topic, so both are part of the key. No header is signed, so
the digest of the body and the topic is claimed, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from onefold.web.webhooks import provider
from onefold.web.webhooks.provider import Provider, Secret, matching
from onefold.web.webhooks.webhook_event import Verified

if TYPE_CHECKING:
    from datetime import datetime

    from onefold.web.http import HttpRequest


class Shopify(Provider, frozen=True):
    """Shopify's webhooks: the secret is that of the app, and the previous one while it rotates."""

    name: ClassVar[str] = "shopify"
    mistaken: ClassVar[dict[str, str]] = {"shpat_": "an access token"}
    wanted: ClassVar[str] = "the client secret of the app"
    kept: ClassVar[tuple[str, ...]] = tuple(
        f"{prefix}shopify-{name}"
        for prefix in ("x-", "")
        for name in ("topic", "shop-domain", "event-id", "webhook-id", "triggered-at")
    )

    def read(self, request: HttpRequest, body: bytes, now: datetime) -> Verified:
        """Check the signature."""
        given = provider.header(request, *_names("hmac-sha256")).strip()

        def fits(secret: Secret) -> bool:
            return provider.is_base64(provider.mac(secret.text.encode(), body), given)

        secret = matching(self.ring, now, fits)
        topic = provider.optional(request, *_names("topic")) or ""
        shop = provider.optional(request, *_names("shop-domain")) or ""
        event_id = provider.optional(request, *_names("event-id"))
        found = event_id or provider.optional(request, *_names("webhook-id"))
        digest = provider.sha256(body)
        event = found or f"digest:{digest}"
        return Verified(
            provider=self.name,
            id=event,
            signed_id=False,
            secret_id=secret.id,
            body=body,
            event_type=topic or None,
            occurred_at=provider.moment_of(provider.optional(request, *_names("triggered-at"))),
            key=f"{shop}:{topic}:{event}",
            digest=digest,
            guard=provider.sha256(topic.lower().encode(), body),
        )


def _names(name: str) -> tuple[str, str]:
    return f"x-shopify-{name}", f"shopify-{name}"
