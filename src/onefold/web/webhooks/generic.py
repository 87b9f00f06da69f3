"""Any other sender that signs with HMAC: where the signature is, and what it is of."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.web.webhooks import provider
from onefold.web.webhooks.provider import BadSignature, TimedProvider
from onefold.web.webhooks.webhook_event import Verified

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from onefold.web.http import HttpRequest
    from onefold.web.webhooks.provider import Algorithm, Secret

_PARTS: Final = re.compile(r"\{(\w*)\}")


class Hmac(TimedProvider, frozen=True, kw_only=True):
    """A sender that signs with HMAC.

    Hmac("secret", sender="acme", header="X-Acme-Signature", prefix="sha256=")
    """

    sender: str
    """Its name; part of the scope of its ids."""
    header: str
    prefix: str = ""
    """What comes before the signature in its header."""
    encoding: Literal["hex", "base64"] = "hex"
    algorithm: Algorithm = "sha256"
    content: str = "{body}"
    """What is signed: text around `{body}`, `{timestamp}` and `{id}`."""
    secret_form: Literal["text", "base64", "hex"] = "text"  # noqa: S105 - the name of a format
    timestamp_header: str | None = None
    id: str | Callable[[bytes], str | None] | None = None
    """The header of the event's id, or a function that finds it in the body. Without an id, a
    digest of the body is the id."""
    type_header: str | None = None

    name: ClassVar[str] = "hmac"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.name(self.sender, "sender")
        self._check_content()
        for name, known in _CHOICES.items():
            value: object = getattr(self, name)
            if value not in known:
                raise InvalidInput(name, f"must be {', '.join(known)}, got {value!r}")

    def _check_content(self) -> None:
        parts = _PARTS.findall(self.content)
        if "body" not in parts or not {*parts} <= {"body", "timestamp", "id"}:
            raise InvalidInput(
                "content", f"must have {{body}}, may have {{timestamp}}, {{id}}: {self.content!r}"
            )
        if ("timestamp" in parts) != (self.timestamp_header is not None):
            raise InvalidInput(
                "timestamp_header",
                "must be given if, and only if, content has {timestamp}: a time that is not signed"
                " proves nothing",
            )
        if "id" in parts and not isinstance(self.id, str):
            raise InvalidInput("id", "must be a header, since content has {id}")

    def key(self, secret: Secret) -> bytes:
        """The text, or what it is the base64 or hexadecimal form of."""
        try:
            if self.secret_form == "base64":  # noqa: S105 - see above
                return base64.b64decode(secret.text, validate=True)
            if self.secret_form == "hex":  # noqa: S105 - see above
                return bytes.fromhex(secret.text)
        except ValueError as error:
            raise InvalidInput("secret", f"must be {self.secret_form}") from error
        return secret.text.encode()

    def read(self, request: HttpRequest, body: bytes, now: datetime) -> Verified:
        """Check the signature."""
        given = provider.header(request, self.header)
        if not given.startswith(self.prefix):
            raise BadSignature("header_malformed", header=self.header)
        given = given.removeprefix(self.prefix)
        stamp = provider.header(request, self.timestamp_header) if self.timestamp_header else None
        signed_at = None if stamp is None else self.signed_at(stamp, now)
        sent_id = provider.optional(request, self.id) if isinstance(self.id, str) else None
        content = self._content(body, stamp, sent_id)
        same = provider.is_hex if self.encoding == "hex" else provider.is_base64
        secret = self.matching(
            now, lambda key: same(provider.mac(key, content, self.algorithm), given)
        )
        found = self.id(body) if callable(self.id) else sent_id
        is_id_unsigned = isinstance(self.id, str) and "{id}" not in self.content
        return Verified(
            provider=f"{self.name}:{self.sender}",
            id=found or "",
            secret_id=secret.id,
            body=body,
            event_type=provider.optional(request, self.type_header) if self.type_header else None,
            timestamp=signed_at,
            guard=provider.sha256(body) if is_id_unsigned else None,
        )

    def _content(self, body: bytes, stamp: str | None, sent_id: str | None) -> bytes:
        parts = {"body": body, "timestamp": (stamp or "").encode()}
        if "{id}" in self.content:
            if not sent_id:
                raise BadSignature("header_missing", header=str(self.id))
            parts["id"] = provider.to_bytes(sent_id)
        pieces = _PARTS.split(self.content)
        # The pieces are text and names in turn.
        texts = [
            piece.encode() if place % 2 == 0 else parts[piece] for place, piece in enumerate(pieces)
        ]
        return b"".join(texts)


_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "encoding": ("hex", "base64"),
    "algorithm": ("sha1", "sha256", "sha512"),
    "secret_form": ("text", "base64", "hex"),
}
