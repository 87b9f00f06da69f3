"""A provider: how one sender signs, as a value. `verify` is the whole of it, and pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from onefold.errors import InvalidInput
from onefold.model.moment import to_micros
from onefold.surfaces.webhooks.rejection import BadSignature
from onefold.surfaces.webhooks.secret import Secret, Secrets, keyring

if TYPE_CHECKING:
    from datetime import datetime

    from onefold.surfaces.http.request import Request
    from onefold.surfaces.webhooks.verified import Verified


class Provider(msgspec.Struct, frozen=True):
    """What the providers share. Their secrets are text; what they mean is each one's own."""

    secrets: Secrets

    name: ClassVar[str] = ""
    kept: ClassVar[tuple[str, ...]] = ()
    """Headers that a stored event keeps: what is no secret and no signature."""
    no_retry: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Headers that tell the sender not to try again."""
    mistaken: ClassVar[dict[str, str]] = {}
    """How what is often given by mistake begins, and what it is."""
    wanted: ClassVar[str] = "the secret that the provider signs webhooks with"
    """What to give instead."""

    def __post_init__(self) -> None:
        """Check the settings: a mistake must show at the start."""
        ring = keyring(self.secrets)
        for secret in ring:
            for prefix, what in self.mistaken.items():
                if secret.text.startswith(prefix):
                    raise InvalidInput("secret", f"must be {self.wanted}, got {what} ({prefix}…)")
        msgspec.structs.force_setattr(self, "secrets", ring)

    @property
    def ring(self) -> tuple[Secret, ...]:
        """The secrets, each with its id, the current one first."""
        return keyring(self.secrets)

    def read(self, request: Request, body: bytes, now: datetime) -> Verified:
        """Check the signature; raises `BadSignature`. Call `verify`, which checks its arguments."""
        raise NotImplementedError

    def challenge(self, verified: Verified) -> str | None:
        """What a sender that only tries the endpoint is answered with; None for an event."""
        del verified
        return None


def verify(provider: Provider, request: Request, body: bytes, now: datetime) -> Verified:
    """Check a request's signature and age, and say what it is; raises `BadSignature`.

    `body` is the body as it was received: what a framework has parsed and written again has other
    bytes, and the signature would not fit.
    """
    if not isinstance(body, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(
            "body",
            "must be the raw bytes of the request, before anything parses or decodes them, got"
            f" {type(body).__name__}",
        )
    to_micros(now, "now")
    try:
        verified = provider.read(request, body, now)
    except BadSignature as error:
        error.provider = provider.name
        raise
    current = provider.ring[0].id
    return msgspec.structs.replace(verified, old_secret=verified.secret_id != current)
