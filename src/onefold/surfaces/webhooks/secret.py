"""Secrets that senders sign with: several at a time while they are rotated, old ones with an end.

How the text of a secret becomes a key is each provider's own: Stripe takes `whsec_…` as it stands,
Standard Webhooks decodes what follows `whsec_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from onefold.errors import InvalidInput
from onefold.model.moment import to_micros
from onefold.surfaces.webhooks.rejection import BadSignature


class Secret(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """One secret, as the provider shows it."""

    text: str
    id: str = ""
    """What metrics and `Verified.secret_id` call it; by default its place: 1, 2, …"""
    until: datetime | None = None
    """When an old one ends. Without it, never."""

    def __post_init__(self) -> None:
        """Check it: a mistake must show at the start, not as a webhook that is refused."""
        text = self.text
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(
                "secret",
                f"must be text as the provider shows it, got {type(text).__name__}. Is the setting"
                " that it is read from there?",
            )
        if not text.strip():
            raise InvalidInput(
                "secret", "must not be empty. Is the setting that it is read from there?"
            )
        if text != text.strip():
            raise InvalidInput("secret", "must not begin or end with white space")
        if self.until is not None:
            to_micros(self.until, "until")

    def expired(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.until is not None and self.until <= now

    def __repr__(self) -> str:
        """Without its text: this may be logged."""
        return f"Secret(id={self.id!r}, until={self.until!r})"


Secrets: TypeAlias = str | Secret | Sequence[str | Secret]
"""One secret or several, the current one first."""


def keyring(secrets: Secrets) -> tuple[Secret, ...]:
    """The secrets, each with an id."""
    several = isinstance(secrets, list | tuple)
    listed: Any = secrets if several else [secrets]
    if not listed:
        raise InvalidInput("secrets", "must be at least one")
    ring = tuple(_named(one, place) for place, one in enumerate(listed, 1))
    if len({secret.id for secret in ring}) < len(ring):
        raise InvalidInput("secrets", "must have ids that differ")
    return ring


def _named(given: Any, place: int) -> Secret:
    secret = given if isinstance(given, Secret) else Secret(given)
    return secret if secret.id else msgspec.structs.replace(secret, id=str(place))


def matching(secrets: Iterable[Secret], now: datetime, fits: Callable[[Secret], bool]) -> Secret:
    """The secret that a request was signed with."""
    found = [secret for secret in secrets if fits(secret)]
    alive = [secret for secret in found if not secret.expired(now)]
    if not alive:
        raise BadSignature("secret_expired" if found else "no_match")
    return alive[0]
