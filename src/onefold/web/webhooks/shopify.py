"""Shopify: `X-Shopify-Hmac-Sha256`, base64, over the body alone.

One event is sent per subscription and topic, so both are part of the key. No header is signed, so
the digest of the body and the topic is claimed, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from onefold.web.webhooks import provider
from onefold.web.webhooks.provider import BadSignature, Provider
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
        given = _header(request, "hmac-sha256").strip()
        if not given:
            raise BadSignature("header_missing", header="x-shopify-hmac-sha256")
        secret = self.matching(now, lambda key: provider.is_base64(provider.mac(key, body), given))
        topic, shop = _header(request, "topic"), _header(request, "shop-domain")
        event_id = _header(request, "event-id") or _header(request, "webhook-id")
        event_id = event_id or f"digest:{provider.sha256(body)}"
        return Verified(
            provider=self.name,
            id=event_id,
            secret_id=secret.id,
            body=body,
            event_type=topic or None,
            occurred_at=provider.moment_of(_header(request, "triggered-at")),
            key=f"{shop}:{topic}:{event_id}",
            guard=provider.sha256(topic.lower().encode(), body),
        )


def _header(request: HttpRequest, name: str) -> str:
    """The value of a header under its old or its new name; empty if it is missing."""
    return provider.optional(request, f"x-shopify-{name}", f"shopify-{name}") or ""
