"""Standard Webhooks 1.0.0, and Svix, whose headers have other names.

`id.timestamp.body` is signed: `v1` is HMAC-SHA256 with a secret that both sides have, `v1a` is
ed25519. A key is of one kind; nothing that is public ever becomes the secret of a MAC.
"""

from __future__ import annotations

import base64
import binascii
import logging
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

import msgspec

from onefold.errors import InvalidInput
from onefold.web.webhooks import provider
from onefold.web.webhooks.provider import BadSignature, Provider, Secret, matching
from onefold.web.webhooks.webhook_event import Verified

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from onefold.web.http import HttpRequest

log: logging.Logger = logging.getLogger("onefold")

Kind: TypeAlias = Literal["whsec", "whpk", "whsk"]

LEAST_BYTES: Final = 24
MOST_BYTES: Final = 64


class Key(msgspec.Struct, frozen=True):
    """A secret, read."""

    kind: Kind
    value: bytes

    def __repr__(self) -> str:
        """Without its value."""
        return f"Key({self.kind!r})"

    def signs_as(self) -> str:
        """The version of the signatures that it makes or checks."""
        return "v1" if self.kind == "whsec" else "v1a"

    def fits(self, signature: str, content: bytes) -> bool:
        """Whether a signature of this key's version is of this key."""
        if self.kind == "whsec":
            return provider.is_base64(provider.mac(self.value, content), signature)
        from onefold.web.webhooks import ed25519

        given = provider.strict_base64(signature)
        if given is None:
            return False
        if self.kind == "whpk":
            public = ed25519.public_key(self.value)
        else:
            public = ed25519.private_key(self.value).public_key()
        return ed25519.is_signed(public, given, content)

    def sign(self, content: bytes) -> str:
        """A signature with its version; only of keys that can."""
        if self.kind == "whsec":
            made = provider.mac(self.value, content)
        else:
            from onefold.web.webhooks import ed25519

            made = ed25519.private_key(self.value).sign(content)
        return f"{self.signs_as()},{base64.b64encode(made).decode()}"


def read_key(secret: Secret) -> Key:
    """The key of a secret: base64, padded or not, after a prefix for its kind."""
    prefix, underscore, rest = secret.text.partition("_")
    if prefix not in ("whsec", "whpk", "whsk") or not underscore:
        prefix, rest = "whsec", secret.text
    kind: Kind = "whpk" if prefix == "whpk" else "whsk" if prefix == "whsk" else "whsec"
    key = Key(kind, _decoded(rest))
    if kind == "whsec":
        _warn_of_length(secret, len(key.value))
    else:
        from onefold.web.webhooks import ed25519

        if kind == "whpk":
            ed25519.public_key(key.value)
        else:
            ed25519.private_key(key.value)
    return key


def _decoded(text: str) -> bytes:
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(
            "secret",
            "must be whsec_ (or whpk_, whsk_) and base64, as the sender shows it; what was given is"
            " not base64. Copy it whole. For a sender that signs with a plain text, use its own"
            " provider, or Hmac()",
        ) from error
    if not decoded:
        raise InvalidInput("secret", "must not be empty after its prefix")
    return decoded


def _warn_of_length(secret: Secret, length: int) -> None:
    if not LEAST_BYTES <= length <= MOST_BYTES:
        log.warning(
            "The webhook secret %s has %d bytes; Standard Webhooks wants %d to %d of them.",
            secret.id or "given",
            length,
            LEAST_BYTES,
            MOST_BYTES,
        )


class StandardWebhooks(Provider, frozen=True):
    """Standard Webhooks and Svix: `whsec_…` for v1, `whpk_…` for v1a, or several of either."""

    tolerance: timedelta = provider.FIVE_MINUTES
    dots_in_id: bool = False
    """Whether ids may contain dots, which make `id.timestamp.body` ambiguous."""
    keys: tuple[tuple[Secret, Key], ...] = ()
    """The secrets, read; leave it out."""

    name: ClassVar[str] = "standard-webhooks"
    mistaken: ClassVar[dict[str, str]] = {"sk_": "an API key", "of_": "an API key of Onefold's"}
    wanted: ClassVar[str] = "the signing secret of the endpoint, which begins with whsec_ or whpk_"
    kept: ClassVar[tuple[str, ...]] = (
        "webhook-id", "webhook-timestamp", "svix-id", "svix-timestamp",
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Read the keys."""
        super().__post_init__()
        provider.check_tolerance(self.tolerance)
        keys = tuple((secret, read_key(secret)) for secret in self.ring)
        msgspec.structs.force_setattr(self, "keys", keys)

    def read(self, request: HttpRequest, body: bytes, now: datetime) -> Verified:
        """Check the signatures, of which one must fit."""
        message_id = provider.header(request, "webhook-id", "svix-id")
        stamp = provider.header(request, "webhook-timestamp", "svix-timestamp")
        signatures = provider.header(request, "webhook-signature", "svix-signature")
        if "." in message_id and not self.dots_in_id:
            raise BadSignature("id_malformed")
        signed_at = provider.seconds(stamp)
        content = b".".join((provider.to_bytes(message_id), stamp.encode(), body))
        secret = self._matching(_by_version(signatures), content, now)
        provider.refuse_stale(signed_at, now, self.tolerance)
        event = provider.json_object(body)
        return Verified(
            provider=self.name,
            id=message_id,
            signed_id=True,
            secret_id=secret.id,
            body=body,
            event_type=provider.text_of(event.get("type")),
            timestamp=signed_at,
            occurred_at=provider.moment_of(event.get("timestamp")),
        )

    def _matching(self, given: dict[str, list[str]], content: bytes, now: datetime) -> Secret:
        keys = {secret.id: key for secret, key in self.keys}
        if not any(key.signs_as() in given for key in keys.values()):
            raise BadSignature("no_usable_scheme")

        def fits(secret: Secret) -> bool:
            key = keys[secret.id]
            return any(key.fits(one, content) for one in given.get(key.signs_as(), ()))

        return matching(self.ring, now, fits)


def _by_version(signatures: str) -> dict[str, list[str]]:
    """The signatures of a list by version; what cannot be read is left out."""
    found: dict[str, list[str]] = {}
    for entry in signatures.split(" "):
        version, comma, signature = entry.partition(",")
        if comma and signature and "," not in signature:
            found.setdefault(version, []).append(signature)
    return found
