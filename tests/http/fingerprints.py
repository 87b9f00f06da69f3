"""Fingerprints by single options, without a route; and bodies of forms."""

from typing import Any

from onefold.web.http import HttpRequest
from onefold.web.idempotency import fingerprint as fingerprints
from onefold.web.idempotency.body import Digested, digested
from onefold.web.idempotency.fingerprint import How
from onefold.web.idempotency.policy import RoutePolicy


def fingerprint(
    request: HttpRequest, body: bytes | Digested, how: How = "raw", **options: Any
) -> str:
    return fingerprints.fingerprint(request, _read(body), _policy(how, **options))


def again(
    stored: str, request: HttpRequest, body: bytes | Digested, how: How = "raw", **options: Any
) -> str | None:
    return fingerprints.fingerprint_like(stored, request, _read(body), _policy(how, **options))


def _read(body: bytes | Digested) -> Digested:
    return digested(body) if isinstance(body, bytes) else body


def _policy(how: How, *, headers: tuple[str, ...] = (), **options: Any) -> RoutePolicy:
    return RoutePolicy(fingerprint=how, fingerprint_headers=headers, **options)


def multipart(boundary: str, *parts: tuple[str, bytes]) -> tuple[str, bytes]:
    """The content type and the body of a form whose parts have these headers."""
    pieces = [f"--{boundary}\r\n{head}\r\n\r\n".encode() + value + b"\r\n" for head, value in parts]
    body = b"".join(pieces) + f"--{boundary}--\r\n".encode()
    return f"multipart/form-data; boundary={boundary}", body


def field(name: str) -> str:
    return f'Content-Disposition: form-data; name="{name}"'


def file(name: str, filename: str, media_type: str = "image/png") -> str:
    return f'{field(name)}; filename="{filename}"\r\nContent-Type: {media_type}'
