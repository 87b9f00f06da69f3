"""The key of a request: where it is, and which keys are valid.

A structured-field string (`"8e03…"`) and the bare text (`8e03…`) are the same key, unless the rules
are strict. A key is never part of a response.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

import msgspec

from onefold.errors import InvalidInput, Needs
from onefold.model import checks
from onefold.model.checks import KEY_BYTES
from onefold.web.problems import Refused, key_invalid

if TYPE_CHECKING:
    from onefold.web.http import HttpRequest, HttpResponse
    from onefold.web.idempotency.body import Digested
    from onefold.web.idempotency.request_claim import KeyedRequest
    from onefold.web.problems import Problem


with Needs("onefold[http]"):
    import http_sf


# Printable and no space; no comma, which a proxy joins lines with; no quote, which would be one
# half of a structured string.
_BARE: Final = re.compile(r"[!#-+\--~]+")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ZERO_UUID: Final = "00000000-0000-0000-0000-000000000000"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# Room for parameters, which are read and ignored.
_PARAMETERS: Final = 1024


class KeyRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys are valid, and in which headers."""

    headers: tuple[str, ...] = ("Idempotency-Key",)
    """The headers of a key. Several must have the same value."""
    strict: bool = False
    """Only structured-field strings without parameters, as the IETF's draft has them."""
    min_length: int = 1
    max_length: int = 255
    """Characters, after the quotes and escapes are gone."""
    format: Literal["uuid"] | None = None
    """The format of a key. The zero UUID is rejected."""
    normalize: Literal["uuid"] | None = None
    """Which spellings are one key: UUIDs in upper and lower case. None is none: byte by byte."""

    def __post_init__(self) -> None:
        """Refuse rules that no key can follow, or that the store cannot keep."""
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
    found = {
        _read(values, rules) for name in rules.headers if (values := request.values(name)) != []
    }
    if len(found) > 1:
        raise _refused("differs from one header to the other")
    return next(iter(found), None)


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
    """Finds keys, and tells of them in its own way."""

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

    def page(self, keyed: KeyedRequest, problem: Problem) -> HttpResponse | None:
        """The answer that stands for a problem; None for the problem itself."""
        ...
