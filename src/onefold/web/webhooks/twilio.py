"""Twilio: `X-Twilio-Signature`, base64 of HMAC-SHA1, over the URL and the form fields.

The URL is the one that Twilio called, so it is configured; X-Forwarded-* headers are not trusted.
A body that is not a form needs its digest in the URL (`bodySHA256`). Time and id are not signed,
so a digest of what is signed is claimed, too.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import SplitResult, parse_qs, urlencode, urlsplit

from onefold.errors import InvalidInput
from onefold.web.webhooks import provider
from onefold.web.webhooks.provider import BadSignature, Provider, form_fields, is_form
from onefold.web.webhooks.webhook_event import Verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from onefold.web.http import HttpRequest

PORTS: Final = {"https": 443, "http": 80}
BODY_HASH: Final = "bodySHA256"
MOST_FIELDS: Final = 1_000
"""Of a form. Twilio sends some dozens; a form is parsed before its signature can be checked."""


class Twilio(Provider, frozen=True):
    """Twilio's webhooks: the secret is the account's auth token."""

    url: str | Callable[[HttpRequest], str]
    """Where Twilio calls: the origin (`https://example.com`), to which the request's path and query
    are added; or with a path, if a proxy changes it; or a function that returns the whole URL."""

    name: ClassVar[str] = "twilio"
    kept: ClassVar[tuple[str, ...]] = ("i-twilio-idempotency-token",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if callable(self.url):
            return
        parts = _split(self.url)
        if parts is None or parts.scheme not in PORTS or not parts.hostname:
            raise InvalidInput("url", f"must begin with https:// or http://, got {self.url!r}")
        if parts.query or parts.fragment:
            raise InvalidInput("url", "must have no query: the query of the request is added")

    def read(self, request: HttpRequest, body: bytes, now: datetime) -> Verified:
        """Check the signature, which may be of the address with its port or without."""
        given = provider.header(request, "x-twilio-signature")
        contents = list(_contents(self._address(request), request, body))

        def signed(key: bytes) -> bytes | None:
            macs = ((provider.mac(key, content, "sha1"), content) for content in contents)
            return next((content for mac, content in macs if provider.is_base64(mac, given)), None)

        secret = self.matching(now, lambda key: signed(key) is not None)
        digest = provider.sha256(signed(self.key(secret)) or b"")
        return Verified(
            provider=self.name,
            id=provider.optional(request, "i-twilio-idempotency-token") or "",
            secret_id=secret.id,
            body=body,
            digest=digest,
            guard=digest,
        )

    def _address(self, request: HttpRequest) -> str:
        if callable(self.url):
            return self.url(request)
        path = "" if urlsplit(self.url).path else request.path
        return f"{self.url}{path}{'?' if request.query else ''}{request.query}"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is not a number
    except ValueError:
        return None
    return parts


def _contents(address: str, request: HttpRequest, body: bytes) -> Iterator[bytes]:
    """What may have been signed."""
    parts = _split(address)
    if parts is None:
        raise BadSignature("no_match")
    fields = _fields(request, parts.query, body)
    for spelling in _spellings(parts):
        # An address with characters that no URL has matches no signature.
        yield from (spelling.encode("utf-8", "surrogatepass") + one for one in fields)


def _fields(request: HttpRequest, query: str, body: bytes) -> list[bytes]:
    """The part of the body that is signed with the address, whose query is given: one of these."""
    hashes = parse_qs(query, keep_blank_values=True).get(BODY_HASH, [])
    if hashes:
        given, expected = hashes[0].lower().encode(), hashlib.sha256(body).hexdigest().encode()
        if len(hashes) > 1 or not hmac.compare_digest(given, expected):
            raise BadSignature("body_unbound")
        return [b"", _form(body)] if is_form(request) else [b""]
    if is_form(request) or not provider.optional(request, "content-type"):
        return [_form(body)]
    if body:
        raise BadSignature("body_unbound")
    return [b""]


def _form(body: bytes) -> bytes:
    """The names and values of a form as they were received: sorted, duplicates removed."""
    if body.count(b"&") >= MOST_FIELDS:
        raise BadSignature("too_many_fields")
    return b"".join(name + value for name, value in sorted(set(form_fields(body))))


def _spellings(parts: SplitResult) -> Iterator[str]:
    """The address as Twilio may have spelled it: with or without its port, its quotes escaped."""
    user, at, host = parts.netloc.rpartition("@")
    bare = host.rpartition(":")[0] if parts.port is not None else host.removesuffix(":")
    port = parts.port or PORTS.get(parts.scheme)
    for netloc in (parts.netloc, f"{user}{at}{bare}", f"{user}{at}{bare}:{port}"):
        spelled = parts._replace(netloc=netloc)
        yield spelled.geturl()
        # Older parts of Twilio encode the query again before they sign it.
        fields = parse_qs(parts.query, keep_blank_values=True)
        yield spelled._replace(query=urlencode(fields, doseq=True)).geturl()
