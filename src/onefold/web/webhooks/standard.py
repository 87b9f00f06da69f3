"""Standard Webhooks 1.0.0, and Svix, whose headers have other names.

`id.timestamp.body` is signed: `v1` is HMAC-SHA256 with a secret that both sides have, `v1a` is
ed25519. A key is of one kind; nothing that is public ever becomes the secret of a MAC.
"""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

import msgspec

from onefold.errors import InvalidInput
from onefold.web.webhooks import provider
from onefold.web.webhooks.provider import (
    MOST_SIGNATURES,
    BadSignature,
    TimedProvider,
    TooManySignatures,
)
from onefold.web.webhooks.webhook_event import Verified

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from onefold.web.http import HttpRequest
    from onefold.web.webhooks.provider import Secret

log: logging.Logger = logging.getLogger("onefold")

Kind: TypeAlias = Literal["whsec", "whpk", "whsk"]

LEAST_BYTES: Final = 24
MOST_BYTES: Final = 64


class Key(msgspec.Struct, frozen=True):
    """A decoded secret."""

    kind: Kind
    value: bytes

    def __repr__(self) -> str:
        # Without its value: this may be logged.
        return f"Key({self.kind!r})"

    @property
    def version(self) -> str:
        """The version of the signatures that it makes or checks."""
        return "v1" if self.kind == "whsec" else "v1a"

    def fits(self, signatures: Sequence[str], content: bytes) -> bool:
        """True if this key has made one of the signatures, which have its version."""
        if not signatures:
            return False
        if self.kind == "whsec":
            made = provider.mac(self.value, content)
            return any(provider.is_base64(made, one) for one in signatures)
        from onefold.web.webhooks import ed25519

        public = ed25519.verifying_key(self.kind, self.value)
        decoded = [given for one in signatures if (given := provider.strict_base64(one))]
        return any(ed25519.is_signed(public, given, content) for given in decoded)

    def sign(self, content: bytes) -> str:
        """A signature with its version; not with a public key."""
        if self.kind == "whsec":
            made = provider.mac(self.value, content)
        else:
            from onefold.web.webhooks import ed25519

            made = ed25519.private_key(self.value).sign(content)
        return f"{self.version},{base64.b64encode(made).decode()}"


def read_key(secret: Secret) -> Key:
    """The key of a secret: base64, padded or not, after a prefix for its kind."""
    prefix, _, rest = secret.text.partition("_")
    match prefix:
        case "whpk" | "whsk":
            from onefold.web.webhooks import ed25519

            key = Key(prefix, _decoded(rest))
            ed25519.verifying_key(key.kind, key.value)
            return key
        case _:
            return Key("whsec", _decoded(secret.text.removeprefix("whsec_")))


def _decoded(text: str) -> bytes:
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise InvalidInput(
            "secret",
            "must be whsec_ (or whpk_, whsk_) and base64, as the sender shows it; this text is not"
            " base64. Copy it whole. For a sender whose secret is plain text, use its own provider,"
            " or Hmac()",
        ) from error
    if not decoded:
        raise InvalidInput("secret", "must not be empty after its prefix")
    return decoded


class StandardWebhooks(TimedProvider, frozen=True):
    """Standard Webhooks and Svix: `whsec_…` for v1, `whpk_…` for v1a, or several of either."""

    dots_in_id: bool = False
    """True: ids may contain dots, which make `id.timestamp.body` ambiguous."""

    name: ClassVar[str] = "standard-webhooks"
    mistaken: ClassVar[dict[str, str]] = {"sk_": "an API key", "of_": "an API key of Onefold's"}
    wanted: ClassVar[str] = "the signing secret of the endpoint, which begins with whsec_ or whpk_"
    kept: ClassVar[tuple[str, ...]] = (
        "webhook-id",
        "webhook-timestamp",
        "svix-id",
        "svix-timestamp",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for secret in self.ring:
            key = self.key(secret)
            if key.kind == "whsec" and not LEAST_BYTES <= len(key.value) <= MOST_BYTES:
                log.warning(
                    "The webhook secret %s has %d bytes. Standard Webhooks specifies %d to %d.",
                    secret.id,
                    len(key.value),
                    LEAST_BYTES,
                    MOST_BYTES,
                )

    def key(self, secret: Secret) -> Key:
        """The key of a secret."""
        return read_key(secret)

    def read(self, request: HttpRequest, body: bytes, now: datetime) -> Verified:
        """Check the signatures, of which one must fit."""
        message_id = provider.header(request, "webhook-id", "svix-id")
        stamp = provider.header(request, "webhook-timestamp", "svix-timestamp")
        signatures = provider.header(request, "webhook-signature", "svix-signature")
        if "." in message_id and not self.dots_in_id:
            raise BadSignature("id_malformed")
        by_version = _by_version(signatures)
        signed_at = self.signed_at(stamp, now)
        content = b".".join((provider.to_bytes(message_id), stamp.encode(), body))
        if not any(self.key(secret).version in by_version for secret in self.ring):
            raise BadSignature("no_usable_scheme")

        def fits(key: Key) -> bool:
            return key.fits(by_version.get(key.version, ()), content)

        secret = self.matching(now, fits)
        event = provider.json_object(body)
        return Verified(
            provider=self.name,
            id=message_id,
            secret_id=secret.id,
            body=body,
            event_type=provider.text_of(event.get("type")),
            timestamp=signed_at,
            occurred_at=provider.moment_of(event.get("timestamp")),
        )


def _by_version(signatures: str) -> dict[str, list[str]]:
    """The signatures of a list by version; what cannot be read is left out."""
    entries = [entry for entry in signatures.split(" ") if entry]
    if len(entries) > MOST_SIGNATURES:
        raise TooManySignatures("webhook-signature")
    found: dict[str, list[str]] = {}
    for entry in entries:
        version, comma, signature = entry.partition(",")
        if comma and signature and "," not in signature:
            found.setdefault(version, []).append(signature)
    return found
