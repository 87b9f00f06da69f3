"""Events that come as a form, as GitHub, Slack and Twilio send them; no byte of it is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from onefold.surfaces.webhooks import reading

if TYPE_CHECKING:
    from onefold.surfaces.http.request import Request


def is_form(request: Request) -> bool:
    """Whether the body says of itself that it is a form."""
    kind = reading.optional(request, "content-type") or ""
    return kind.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded"


def form_fields(body: bytes) -> list[tuple[bytes, bytes]]:
    """The fields of a form in their order, as bytes, empty ones too."""
    fields: list[tuple[bytes, bytes]] = []
    for part in body.split(b"&"):
        if part:
            name, _, value = part.replace(b"+", b" ").partition(b"=")
            fields.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    return fields


def payload(request: Request, body: bytes) -> bytes | None:
    """The event that a form wraps in its first field; None where there is no such form.

    What the body is called is not signed. Called a form, JSON in which somebody has written
    `&payload=…` must not become another event.
    """
    fields = form_fields(body) if is_form(request) else []
    return fields[0][1] if fields and fields[0][0] == b"payload" else None
