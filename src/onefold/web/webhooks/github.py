"""GitHub: `X-Hub-Signature-256: sha256=…`, over the body alone.

The id, the name and the time of a delivery are not signed. So the digest of the body is claimed,
too: it detects a body that is sent again under another id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from onefold.web.webhooks import provider
from onefold.web.webhooks.provider import BadSignature, Provider
from onefold.web.webhooks.webhook_event import Verified

if TYPE_CHECKING:
    from datetime import datetime

    from onefold.web.http import HttpRequest
    from onefold.web.webhooks.provider import Algorithm


class GitHub(Provider, frozen=True):
    """GitHub's webhooks, sent as JSON or as a form."""

    legacy_sha1: bool = False
    """True: the older header `X-Hub-Signature` is accepted if the newer one is missing."""

    name: ClassVar[str] = "github"
    mistaken: ClassVar[dict[str, str]] = {
        "ghp_": "an access token",
        "github_pat_": "an access token",
        "gho_": "an access token",
    }
    wanted: ClassVar[str] = "the secret that was entered for this webhook in its settings"
    kept: ClassVar[tuple[str, ...]] = ("x-github-event", "x-github-delivery")

    def read(self, request: HttpRequest, body: bytes, now: datetime) -> Verified:
        """Check the signature."""
        algorithm, given = self._signature(request)
        secret = self.matching(
            now, lambda key: provider.is_hex(provider.mac(key, body, algorithm), given)
        )
        return Verified(
            provider=self.name,
            id=provider.optional(request, "x-github-delivery") or "",
            secret_id=secret.id,
            body=body,
            content=provider.payload(request, body),
            event_type=provider.optional(request, "x-github-event"),
            guard=provider.sha256(body),
        )

    def _signature(self, request: HttpRequest) -> tuple[Algorithm, str]:
        given = provider.optional(request, "x-hub-signature-256")
        algorithm: Algorithm = "sha256"
        if not given:
            given, algorithm = provider.optional(request, "x-hub-signature"), "sha1"
            if given and not self.legacy_sha1:
                raise BadSignature("no_usable_scheme", header="x-hub-signature-256")
        if not given:
            raise BadSignature("header_missing", header="x-hub-signature-256")
        if not given.startswith(f"{algorithm}="):
            raise BadSignature("header_malformed", header="x-hub-signature-256")
        return algorithm, given.removeprefix(f"{algorithm}=")
