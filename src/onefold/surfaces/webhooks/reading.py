"""What is read of a request: its headers and their parts. Raises nothing but `BadSignature`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from onefold.errors import InvalidInput
from onefold.model.moment import EPOCH, span
from onefold.surfaces.webhooks.rejection import BadSignature

if TYPE_CHECKING:
    from onefold.surfaces.http.request import Request

Algorithm: TypeAlias = Literal["sha1", "sha256", "sha512"]

FIVE_MINUTES: Final = timedelta(minutes=5)

# Twelve digits of seconds last for 31,000 years; milliseconds have thirteen.
_SECONDS: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_MALFORMED: Final = (UnicodeDecodeError, ValueError, msgspec.DecodeError, RecursionError)


def header(request: Request, *names: str) -> str:
    """The one value of a required header, under any of its names."""
    value = optional(request, *names)
    if not value:
        raise BadSignature("header_missing", header=names[0])
    return value


def optional(request: Request, *names: str) -> str | None:
    """The one value of a header, under any of its names; several that differ are refused."""
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


def refuse_stale(signed_at: datetime, now: datetime, tolerance: timedelta) -> None:
    """Refuse what is too far from now, on either side. Timestamps have no fractions."""
    age = now.replace(microsecond=0) - signed_at
    if age > tolerance:
        raise BadSignature("too_old")
    if -age > tolerance:
        raise BadSignature("too_new")


def check_tolerance(tolerance: object) -> None:
    """Zero is zero; there is no way to say "any age"."""
    if tolerance is None:
        raise InvalidInput("tolerance", "must be a timedelta: signatures of any age are replays")
    span(tolerance, "tolerance")


def mac(key: bytes, content: bytes, algorithm: Algorithm = "sha256") -> bytes:
    """The MAC of what was signed."""
    return hmac.digest(key, content, algorithm)


def is_hex(expected: bytes, given: str) -> bool:
    """Whether a signature in hexadecimal is the expected one, in constant time."""
    return hmac.compare_digest(expected.hex().encode(), given.lower().encode("utf-8", "replace"))


def is_base64(expected: bytes, given: str) -> bool:
    """Whether a signature in base64 is the expected one, in constant time. One spelling counts."""
    return hmac.compare_digest(base64.b64encode(expected), given.encode("utf-8", "replace"))


def strict_base64(text: str) -> bytes | None:
    """What base64 says, where it says it in the one way that there is."""
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
    """The members of a JSON object; none where the body is anything else."""
    try:
        found: object = msgspec.json.decode(body)
    except _MALFORMED:
        return {}
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def text_of(found: object) -> str | None:
    """A text that says something; None for anything else."""
    return found if isinstance(found, str) and found else None


def moment_of(found: object) -> datetime | None:
    """The time of a body's whole seconds, or of its text by RFC 3339; None for anything else."""
    if type(found) is int and 0 <= found < 10**12:
        try:
            return EPOCH + timedelta(seconds=found)
        except OverflowError:
            return None
    if isinstance(found, str):
        try:
            moment = datetime.fromisoformat(found)
        except ValueError:
            return None
        return moment if moment.tzinfo is not None else None
    return None
