"""How a sender signs: the base of all providers, their secrets and `BadSignature`.

Several secrets are valid while they are rotated. Each provider makes its key from the text of a
secret: Stripe uses `whsec_…` as it is, Standard Webhooks decodes what follows `whsec_`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from onefold.errors import InvalidInput, OnefoldError
from onefold.model.timestamps import EPOCH, span, to_micros

if TYPE_CHECKING:
    from onefold.web.http import HttpRequest
    from onefold.web.webhooks.webhook_event import Verified


MOST_SIGNATURES: Final = 16
"""In one header. A sender that rotates its secrets sends one for each of them."""

_REASONS: Final = {
    "header_missing": "a header that its signature needs is missing or empty",
    "header_repeated": "a header has several values that differ",
    "header_malformed": "its signature cannot be read",
    "too_many_signatures": f"its header has more than {MOST_SIGNATURES} signatures",
    "too_many_fields": "its form has more fields than its sender sends",
    "id_malformed": "its id makes the signed text ambiguous",
    "timestamp_malformed": "its timestamp is not a whole number of seconds",
    "too_old": "it was signed too long ago, or the clock of this machine is ahead",
    "too_new": "it was signed in the future, or the clock of this machine is behind",
    "no_usable_scheme": "it has no signature that the secrets can check",
    "no_match": (
        "no signature fits any secret. Either the secret is not the one of this endpoint, or the"
        " body was changed after it was signed"
    ),
    "secret_expired": "it is signed with a secret that has expired",
    "body_unbound": "no signed part of it contains the digest of its body",
}


def why(code: str) -> str:
    """The text of a code, for logs."""
    return _REASONS.get(code, code)


class BadSignature(OnefoldError):
    """The request is rejected before anything is stored. `code` is for metrics and logs."""

    status = 401
    provider: str
    code: str

    def __init__(self, code: str, *, provider: str = "", header: str | None = None) -> None:
        """`header` is the name of the header that is wrong."""
        about = "" if header is None else f" ({header})"
        super().__init__(
            f"The webhook is rejected: {_REASONS[code]}{about}.",
            code=code,
            provider=provider,
            header=header,
        )

    header: str | None


class TooManySignatures(BadSignature):
    """The header has more signatures than a sender has secrets; none of them is checked."""

    status = 400

    def __init__(self, header: str) -> None:
        super().__init__("too_many_signatures", header=header)


class Secret(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """One secret, as the provider shows it."""

    text: str
    id: str = ""
    """Its name in metrics and in `Verified.secret_id`; by default its position: 1, 2, …"""
    until: datetime | None = None
    """When it expires. Without it, never."""

    def __post_init__(self) -> None:
        text: Any = self.text
        if not isinstance(text, str) or not text.strip():
            found = "an empty text" if isinstance(text, str) else type(text).__name__
            raise InvalidInput(
                "secret",
                f"must be the text that the provider shows, got {found}. Check the setting that"
                " contains it",
            )
        if text != text.strip():
            raise InvalidInput("secret", "must not begin or end with white space")
        if self.until is not None:
            to_micros(self.until, "until")

    def expired(self, now: datetime) -> bool:
        """True if its time is over."""
        return self.until is not None and self.until <= now

    def __repr__(self) -> str:
        # Without its text: this may be logged.
        return f"Secret(id={self.id!r}, until={self.until!r})"


Secrets: TypeAlias = str | Secret | Sequence[str | Secret]
"""One secret or several, the current one first."""


def keyring(secrets: Secrets) -> tuple[Secret, ...]:
    """The secrets, each with an id."""
    several = isinstance(secrets, list | tuple)
    listed: Any = secrets if several else [secrets]
    if not listed:
        raise InvalidInput("secrets", "must contain at least one")
    ring = tuple(_named(one, place) for place, one in enumerate(listed, 1))
    if len({secret.id for secret in ring}) < len(ring):
        raise InvalidInput("secrets", "must have ids that differ")
    return ring


def _named(given: Any, place: int) -> Secret:
    secret = given if isinstance(given, Secret) else Secret(given)
    return secret if secret.id else msgspec.structs.replace(secret, id=str(place))


class Provider(msgspec.Struct, frozen=True):
    """The base of providers. Each one makes keys from the text of its secrets."""

    secrets: Secrets

    name: ClassVar[str] = ""
    kept: ClassVar[tuple[str, ...]] = ()
    """Headers that are stored with an event: no secrets and no signatures."""
    no_retry: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Headers that tell the sender not to try again."""
    mistaken: ClassVar[dict[str, str]] = {}
    """Prefixes of values that are often given by mistake, and what they are."""
    wanted: ClassVar[str] = "the secret that the provider signs webhooks with"
    """What to give instead."""

    def __post_init__(self) -> None:
        ring = keyring(self.secrets)
        for secret in ring:
            for prefix, what in self.mistaken.items():
                if secret.text.startswith(prefix):
                    raise InvalidInput("secret", f"must be {self.wanted}, got {what} ({prefix}…)")
            self.key(secret)
        msgspec.structs.force_setattr(self, "secrets", ring)

    @property
    def ring(self) -> tuple[Secret, ...]:
        """The secrets, each with its id, the current one first."""
        return keyring(self.secrets)

    def key(self, secret: Secret) -> Any:
        """The key of a secret; raises `InvalidInput` for a text that cannot be one."""
        return secret.text.encode()

    def matching(self, now: datetime, fits: Callable[[Any], bool]) -> Secret:
        """The secret that a request was signed with; `fits` checks the signature with a key."""
        found = [secret for secret in self.ring if fits(self.key(secret))]
        valid = [secret for secret in found if not secret.expired(now)]
        if not valid:
            raise BadSignature("secret_expired" if found else "no_match")
        return valid[0]

    def read(self, request: HttpRequest, body: bytes, now: datetime) -> Verified:
        """Check the signature; raises `BadSignature`. Call `verify`, which checks its arguments."""
        raise NotImplementedError

    def challenge(self, verified: Verified) -> str | None:
        """The response to a request that only tests the endpoint; None for an event."""
        del verified
        return None


class TimedProvider(Provider, frozen=True):
    """The base of providers that sign the time."""

    tolerance: timedelta = timedelta(minutes=5)
    """How far the signed time may be from the current time. Zero means zero."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tolerance is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise InvalidInput("tolerance", "must be a timedelta: old signatures are replays")
        span(self.tolerance, "tolerance")

    def signed_at(self, stamp: str, now: datetime) -> datetime:
        """The time of a timestamp; rejects one that is too old, or too far in the future.

        Read it before a signature is checked: a captured request must not cost a MAC of its body.
        """
        signed_at = seconds(stamp)
        age = now.replace(microsecond=0) - signed_at
        if age > self.tolerance:
            raise BadSignature("too_old")
        if -age > self.tolerance:
            raise BadSignature("too_new")
        return signed_at


def verify(provider: Provider, request: HttpRequest, body: bytes, now: datetime) -> Verified:
    """Check the signature and the age of a request; raises `BadSignature`.

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


Algorithm: TypeAlias = Literal["sha1", "sha256", "sha512"]

# Twelve digits of seconds last for 31,000 years; milliseconds have thirteen.
_SECONDS: Final = re.compile(r"[0-9]{1,12}", re.ASCII)


def header(request: HttpRequest, *names: str) -> str:
    """The one value of a required header, under any of its names."""
    value = optional(request, *names)
    if not value:
        raise BadSignature("header_missing", header=names[0])
    return value


def optional(request: HttpRequest, *names: str) -> str | None:
    """The one value of a header, under any of its names; different values are rejected."""
    wanted = {name.lower() for name in names}
    values = {value for name, value in request.headers if name.lower() in wanted}
    if len(values) > 1:
        raise BadSignature("header_repeated", header=names[0])
    return next(iter(values), None)


def to_bytes(value: str) -> bytes:
    """The bytes of a header, as they were sent."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError as error:
        raise BadSignature("header_malformed") from error


def seconds(text: str) -> datetime:
    """The time of a timestamp: ASCII digits, and nothing else."""
    if not _SECONDS.fullmatch(text):
        raise BadSignature("timestamp_malformed")
    try:
        return EPOCH + timedelta(seconds=int(text))
    except OverflowError as error:
        raise BadSignature("timestamp_malformed") from error


def mac(key: bytes, content: bytes, algorithm: Algorithm = "sha256") -> bytes:
    """The MAC of the signed bytes."""
    made = _keyed(key, algorithm).copy()
    made.update(content)
    return made.digest()


@lru_cache(maxsize=1_024)
def _keyed(key: bytes, algorithm: Algorithm) -> hmac.HMAC:
    """Cached: to read a key takes longer than the MAC of a short body."""
    return hmac.new(key, digestmod=algorithm)


def is_hex(expected: bytes, given: str) -> bool:
    """True if a signature in hexadecimal is the expected one, in constant time."""
    return hmac.compare_digest(expected.hex().encode(), given.lower().encode("utf-8", "replace"))


def is_base64(expected: bytes, given: str) -> bool:
    """True if a signature in base64 is the expected one, in constant time; only if canonical."""
    return hmac.compare_digest(base64.b64encode(expected), given.encode("utf-8", "replace"))


def strict_base64(text: str) -> bytes | None:
    """Decoded base64; only the canonical spelling is valid."""
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return decoded if base64.b64encode(decoded).decode() == text else None


def sha256(*parts: bytes) -> str:
    """A digest of the parts, each after its length."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part) if len(parts) > 1 else b"")
        digest.update(part)
    return digest.hexdigest()


def json_object(body: bytes) -> dict[str, Any]:
    """The members of a JSON object; empty if the body is not one."""
    try:
        found: object = msgspec.json.decode(body)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return {}
    return members(found)


def members(found: object) -> dict[str, Any]:
    """The members of a decoded object; empty for anything else."""
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def text_of(found: object) -> str | None:
    """A text that is not empty; None for anything else."""
    return found if isinstance(found, str) and found else None


def moment_of(found: object) -> datetime | None:
    """The time of whole seconds or of a text by RFC 3339 in a body; None for anything else."""
    try:
        if type(found) is int and 0 <= found < 10**12:
            return EPOCH + timedelta(seconds=found)
        moment = datetime.fromisoformat(found) if isinstance(found, str) else None
    except (ValueError, OverflowError):
        return None
    return None if moment is None or moment.tzinfo is None else moment


def is_form(request: HttpRequest) -> bool:
    """True if Content-Type is a form."""
    kind = optional(request, "content-type") or ""
    return kind.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded"


def form_fields(body: bytes) -> list[tuple[bytes, bytes]]:
    """The fields of a form in their order, as bytes, empty ones too."""
    # In latin-1 every byte is a character, so nothing is lost.
    fields = parse_qsl(body.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]


def payload(request: HttpRequest, body: bytes) -> bytes | None:
    """The event that a form wraps in its first field; None if there is no such form.

    Content-Type is not signed. JSON that contains `&payload=…` and is sent as a form must not
    become another event.
    """
    fields = form_fields(body) if is_form(request) else []
    return fields[0][1] if fields and fields[0][0] == b"payload" else None
