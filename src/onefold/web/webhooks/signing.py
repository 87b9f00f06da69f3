"""Sign outgoing events, and decide what a response to one means. No I/O.

A delivery has one id for all attempts, and a new timestamp for each. While secrets are rotated, it
has one signature per secret.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from onefold.errors import InvalidInput
from onefold.model.retry import parse_retry_after
from onefold.model.timestamps import to_micros
from onefold.web.webhooks.provider import keyring
from onefold.web.webhooks.standard import read_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onefold.web.http import Header
    from onefold.web.webhooks.provider import Secret, Secrets
    from onefold.web.webhooks.standard import Key


GONE: Final = 410
THROTTLED: Final = frozenset({429, 502, 503, 504, 529})
"""Statuses of a receiver that is overloaded or being deployed."""
DEFAULT_PAUSE: Final = timedelta(seconds=60)
"""The pause after such a status without Retry-After."""

# No dot: it would make `id.timestamp.body` ambiguous.
_ID: Final = re.compile(r"[!-\-/-~]{1,255}", re.ASCII)


def sign(secrets: Secrets, *, id: str, body: bytes, now: datetime) -> tuple[Header, ...]:  # noqa: A002 - its name in Standard Webhooks
    """The headers of one attempt: `webhook-id`, `webhook-timestamp` and `webhook-signature`.

    `whsec_…` signs as v1, `whsk_…` as v1a. Secrets whose time is over do not sign.
    """
    return Signer(secrets).sign(id=id, body=body, now=now)


class Signer:
    """`sign` for many attempts: the secrets are decoded once."""

    def __init__(self, secrets: Secrets) -> None:
        self.keys: tuple[tuple[Secret, Key], ...] = tuple(
            (secret, read_key(secret)) for secret in keyring(secrets)
        )
        if any(key.kind == "whpk" for _, key in self.keys):
            raise InvalidInput("secrets", "must be whsec_ or whsk_: a whpk_ can only verify")

    def sign(self, *, id: str, body: bytes, now: datetime) -> tuple[Header, ...]:  # noqa: A002 - its name in Standard Webhooks
        """The headers of one attempt."""
        if not _ID.fullmatch(id):
            raise InvalidInput(
                "id", f"must be 1 to 255 visible ASCII characters, no dot, got {id!r}"
            )
        if not isinstance(body, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput("body", "must be the bytes that are sent")
        stamp = str(to_micros(now, "now") // 1_000_000)
        content = b".".join((id.encode(), stamp.encode(), body))
        signatures = [key.sign(content) for secret, key in self.keys if not secret.expired(now)]
        if not signatures:
            raise InvalidInput("secrets", "must contain one that has not expired")
        return (
            ("webhook-id", id),
            ("webhook-timestamp", stamp),
            ("webhook-signature", " ".join(signatures)),
        )


class Delivered(msgspec.Struct, frozen=True):
    """The receiver has accepted the event."""


class SendFailed(msgspec.Struct, frozen=True):
    """The attempt has failed. Retry it by your own schedule, and not before `after`."""

    reason: str
    after: timedelta | None = None


class Throttled(msgspec.Struct, frozen=True):
    """The receiver is overloaded: wait, and do not count the attempt."""

    after: timedelta


class Disabled(msgspec.Struct, frozen=True):
    """The receiver rejects all events: send nothing until it is enabled again."""


SendResult: TypeAlias = Delivered | SendFailed | Throttled | Disabled


def after_response(status: int, headers: Iterable[Header], now: datetime) -> SendResult:
    """The meaning of a response. A redirect is not followed: it is a failed attempt."""
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's own
        return Delivered()
    if status == GONE:
        return Disabled()
    # The first value of a header counts.
    by_name = {name.lower(): value for name, value in reversed(list(headers))}
    text = by_name.get("retry-after", "")
    after = parse_retry_after(text, now=now, date=by_name.get("date"))
    if status in THROTTLED:
        return Throttled(DEFAULT_PAUSE if after is None else after)
    if 300 <= status < 400:  # noqa: PLR2004 - HTTP's own
        return SendFailed(f"answered {status}, and redirects are not followed", after)
    return SendFailed(f"answered {status}", after)
