"""The key of a request: where it is, which keys are valid, and who they belong to.

A structured-field string (`"8e03…"`) and the bare text (`8e03…`) are the same key, unless the rules
are strict. A key is never part of a response.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable
from uuid import UUID

import msgspec

from onefold.app.keys import scope_of
from onefold.errors import InvalidInput, Needs
from onefold.model import checks
from onefold.model.checks import KEY_BYTES
from onefold.model.claim import ClaimKey
from onefold.model.unique import fingerprint as digest
from onefold.web.problems import (
    KEY_EXPIRED,
    NOT_IDENTIFIED,
    Refused,
    key_invalid,
    key_missing,
    make,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from onefold.web.http import HttpRequest, HttpResponse
    from onefold.web.idempotency.body import Digested
    from onefold.web.idempotency.policy import RoutePolicy
    from onefold.web.problems import Problem


with Needs("onefold[http]"):
    import http_sf


# Printable and no space; no comma, which a proxy joins lines with; no quote, which would be one
# half of a structured string.
_BARE: Final = re.compile(r"[!#-+\--~]+")
# A structured-field string without escapes and parameters, as nearly every client sends it.
_PLAIN_STRING: Final = re.compile(r'"([ !#-\[\]-~]*)"')
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ZERO_UUID: Final = "00000000-0000-0000-0000-000000000000"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# Room for parameters, which are read and ignored.
_PARAMETERS: Final = 1024
_MILLISECOND: Final = 1000
_DATED: Final = 7
_AHEAD: Final = 3_600_000_000
"""Microseconds that the clock of a client may be ahead."""


class KeyRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys are valid, and in which headers."""

    headers: tuple[str, ...] = ("Idempotency-Key",)
    """The headers of a key. Several must have the same value."""
    strict: bool = False
    """Only structured-field strings without parameters, as in the IETF draft."""
    min_length: int = 1
    max_length: int = 255
    """Characters, after the quotes and escapes are gone."""
    format: Literal["uuid"] | None = None
    """The format of a key. The zero UUID is rejected."""
    normalize: Literal["uuid"] | None = None
    """Which spellings are one key: UUIDs in upper and lower case. None is none: byte by byte."""

    def __post_init__(self) -> None:
        checks.listed(self.headers, "headers", "names of headers")
        if not self.headers or not all(_TOKEN.fullmatch(name) for name in self.headers):
            raise InvalidInput("headers", f"must be names of headers, got {self.headers!r}")
        if not 1 <= self.min_length <= self.max_length <= KEY_BYTES:
            raise InvalidInput(
                "max_length",
                f"and min_length must be between 1 and {KEY_BYTES}, the lesser first,"
                f" got {self.min_length} and {self.max_length}",
            )


def read_key(request: HttpRequest, rules: KeyRules) -> str | None:
    """The key of a request; None if it has none; `Refused` if it is not valid."""
    key: str | None = None
    for name in rules.headers:
        if values := request.values(name):
            read = _read(values, rules)
            if key not in (None, read):
                raise _refused("differs from one header to the other")
            key = read
    return key


def check_key(key: str, rules: KeyRules) -> str:
    """Check the length and the format of a key; returns its normal form."""
    if not rules.min_length <= len(key) <= rules.max_length:
        raise _refused(f"must have {rules.min_length} to {rules.max_length} characters")
    is_uuid = _UUID.fullmatch(key) is not None
    if rules.format == "uuid" and (not is_uuid or key == _ZERO_UUID):
        raise _refused("must be a UUID such as 8e03978e-40d5-43e8-bc93-6894a57f9324, and not zero")
    return key.lower() if rules.normalize == "uuid" and is_uuid else key


def _read(values: list[str], rules: KeyRules) -> str:
    if len(values) > 1:
        raise _refused("was sent more than once")
    value = values[0].strip(" ") if rules.strict else values[0].strip(" \t")
    if not value:
        raise _refused("must not be empty")
    if len(value) > 2 * rules.max_length + _PARAMETERS:
        raise _refused(f"must have {rules.min_length} to {rules.max_length} characters")
    if rules.strict or value.startswith('"'):
        return check_key(_structured(value, strict=rules.strict), rules)
    if value.startswith("'") or not _BARE.fullmatch(value):
        raise _refused(
            "must be one text in double quotes, or one without spaces, commas and quotes, in"
            " printable ASCII"
        )
    return check_key(value, rules)


def _structured(value: str, *, strict: bool) -> str:
    if (plain := _PLAIN_STRING.fullmatch(value)) is not None:
        return plain[1]
    try:
        item = http_sf.parse(value.encode("latin-1"), tltype="item")
    except (http_sf.StructuredFieldError, UnicodeEncodeError):
        raise _refused("must be a structured-field string: text in double quotes") from None
    key, parameters = item if isinstance(item, tuple) else (item, {})
    if not isinstance(key, str):
        raise _refused("must be a structured-field string: text in double quotes")
    if strict and parameters:
        raise _refused("must have no parameters")
    return key


def _refused(reason: str) -> Refused:
    return Refused(key_invalid(reason))


@runtime_checkable
class KeySource(Protocol):
    """Another place of keys than a header, with its own pages for rejected requests."""

    @property
    def surface(self) -> str:
        """The surface of the claims."""
        ...

    @property
    def options(self) -> dict[str, Any]:
        """`PolicyOptions` that a route can replace."""
        ...

    def read(
        self, request: HttpRequest, body: Digested, principal: object
    ) -> tuple[str, str] | None:
        """The scope and the key; None if there is none, `Refused` if it is not valid."""
        ...

    def page(self, request: HttpRequest, body: Digested, problem: Problem) -> HttpResponse | None:
        """The response instead of a problem; None for the problem itself."""
        ...


def claim_key(
    policy: RoutePolicy,
    request: HttpRequest,
    body: Digested,
    *,
    principal: object,
    tenant: object,
    now: Callable[[], int],
) -> ClaimKey | None:
    """The key of a request; `Refused` if it has none and its route requires one."""
    if policy.form is not None:
        found = policy.form.read(request, body, _named(principal))
    elif (key := read_key(request, policy.key)) is None:
        found = None
    else:
        if policy.expired == "refuse":
            _refuse_old(key, policy.retention, now())
        found = _scope(policy, request, principal), key
    if found is None and policy.required:
        raise Refused(key_missing(policy.key.headers[0]))
    owner = checks.text("" if tenant is None else _named(tenant), "tenant")
    return None if found is None else ClaimKey(owner, policy.surface, *found)


def _refuse_old(key: str, retention: timedelta, now: int) -> None:
    found = UUID(key)
    if found.version != _DATED:
        raise _refused("must be a UUID of version 7, which contains its time")
    issued = (found.int >> 80) * _MILLISECOND
    if issued <= now - retention.total_seconds() * 1_000_000:
        raise Refused(make(KEY_EXPIRED))
    if issued > now + _AHEAD:
        # It would be valid after its response is deleted.
        raise _refused("must not be dated in the future")


def _scope(policy: RoutePolicy, request: HttpRequest, principal: object) -> str:
    """The caller, and the route if keys are unique per route."""
    named = _named(principal)
    if not isinstance(named, str) or not named:
        raise Refused(make(NOT_IDENTIFIED))
    caller = scope_of(named)
    if policy.scope == "principal":
        return caller
    text = f"{caller}\n{request.operation}"
    return text if len(text.encode()) <= KEY_BYTES else f"{caller}\n{digest(request.operation)}"


def _named(caller: object) -> object:
    """Numbers and UUIDs as text."""
    return str(caller) if type(caller) in (int, UUID) else caller
