"""JSON on the wire: camelCase, seconds, ISO times; errors that name the field.

The server encodes values with this module and decodes bodies and queries with it. A body that
cannot be accepted raises `BadBody`, and nothing is stored.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from onefold.errors import InvalidInput
from onefold.model.checks import ATTEMPTS, PRIORITIES
from onefold.model.json_text import is_object
from onefold.model.retry import Backoff, Exponential, Fixed
from onefold.model.timestamps import Duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class BadBody(InvalidInput):
    """A body, query, path or header that cannot be accepted; `field` is as in `items[3].delay`."""

    def __init__(self, field: str, reason: str, *, of: str = "body") -> None:
        """`of` is the part of the request that contains the field."""
        super().__init__(field, reason)
        self.of: str = of


class Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """What a client sends. A member that is not declared is rejected."""


class Answer(msgspec.Struct, rename="camel", kw_only=True):
    """A response of the server that has no matching value in the model."""


Query = Body
"""The query of a URL, by the same rules."""


def camel(field: str) -> str:
    """The name of a field in JSON."""
    head, *rest = field.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _encode_hook(value: object) -> object:
    if isinstance(value, Duration):
        return value.total_seconds()
    raise NotImplementedError(f"a {type(value).__name__} cannot be written as JSON")


encode: Final = msgspec.json.Encoder(enc_hook=_encode_hook).encode
"""A value as JSON."""


def members_of(value: msgspec.Struct) -> dict[str, Any]:
    """The members of a struct on the wire."""
    members: dict[str, Any] = msgspec.to_builtins(value, enc_hook=_encode_hook)
    return members


def iso(moment: datetime) -> str:
    """A time in the format of SimpleQ: UTC, milliseconds, Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_of(milliseconds: int) -> str:
    """The same, of milliseconds since the epoch."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second_of(seconds)}.{rest:03}Z"


@lru_cache(maxsize=64)
def _second_of(seconds: int) -> str:
    """Cached: most responses of a busy server name the same few seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def iso_or_none(moment: datetime | None) -> str | None:
    """The same, or None."""
    return None if moment is None else iso(moment)


@cache
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """A decoder for values that Onefold itself has written."""
    return msgspec.json.Decoder(kind, dec_hook=_decode_hook)


class _InvalidMember(ValueError):
    """An invalid member of a value that `_decode_hook` reads."""

    def __init__(self, error: InvalidInput) -> None:
        super().__init__(str(error))
        self.error: InvalidInput = error


def _decode_hook(kind: type, value: object) -> object:
    if kind is Duration:
        return _duration(value)
    if kind is Backoff:
        return _backoff(value)
    raise NotImplementedError(f"a {kind.__name__} cannot be read from JSON")


def _duration(value: object) -> timedelta:
    """A duration from seconds. Errors are worded as those of msgspec, which adds the place."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"Expected `float`, got `{_JSON_TYPES.get(type(value), 'object')}`")  # noqa: TRY004
    if value < 0:
        raise ValueError("Expected `float` >= 0")
    try:
        return Duration(seconds=value)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"Expected a number of seconds, got {value!r}") from error


def _backoff(value: Any) -> Backoff:
    is_fixed = is_object(value) and value.get("type") == "fixed"
    kind: type[Fixed | Exponential] = Fixed if is_fixed else Exponential
    try:
        return msgspec.convert(value, kind, dec_hook=_decode_hook)
    except msgspec.ValidationError as error:
        raise _InvalidMember(_invalid(error)) from error
    except InvalidInput as error:
        raise _InvalidMember(error) from error


SECONDS: Final = "Seconds."
"""The unit of every duration on the wire."""
_JSON_TYPES: Final[dict[type, str]] = {str: "str", bool: "bool", list: "array", type(None): "null"}


def schema_of(kind: type) -> dict[str, Any]:
    """The JSON Schema of a type that msgspec does not know."""
    if kind is Duration:
        return {"type": "number", "minimum": 0, "description": SECONDS}
    if kind is Backoff:
        _, kinds = msgspec.json.schema_components((Exponential, Fixed), schema_hook=schema_of)
        kinds["Exponential"]["required"] = []  # without a type, it is exponential
        return {"anyOf": list(kinds.values())}
    raise NotImplementedError


def decode(body: bytes, kind: Any) -> Any:
    """A body as a value of `kind`; raises `BadBody`, which names the place."""
    try:
        value = decoder(kind).decode(body)
        text = body.decode()
        has_long_number = len(text) >= _LONG and _LONG_NUMBER.search(text)
        if "\\" in text or _repeats_name(text) or has_long_number:
            # A member may be repeated. It is rejected: parsers disagree about which one counts.
            _strict.decode(text)
    except msgspec.ValidationError as error:
        raise _invalid(error) from error
    except msgspec.DecodeError as error:
        raise BadBody("$", _malformed(body, str(error))) from error
    except RecursionError as error:
        raise BadBody("$", "is nested too deeply to be read") from error
    except UnicodeDecodeError as error:
        # The position in this error counts from the start of a string, not of the body.
        raise BadBody("$", _malformed(body, str(error))) from error
    except ValueError as error:
        # The limits of the json module, such as the number of digits.
        raise BadBody("$", f"cannot be read as JSON: {error}") from error
    return value


def _repeats_name(text: str) -> bool:
    """Whether JSON without a backslash, so that no string contains a quote, repeats a name."""
    parts = text.split('"')
    strings = parts[1::2]
    if len(set(strings)) == len(strings):  # of most bodies
        return False
    after = [part.lstrip()[:1] for part in parts[2::2]]
    names = [name for name, next_ in zip(strings, after, strict=True) if next_ == ":"]
    return len(set(names)) != len(names)


def _members(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise BadBody(name, "is given twice")
        seen.add(name)


_LONG_NUMBER: Final = re.compile(r"[0-9]{1000}")
_LONG: Final = 1_000
_strict: Final = json.JSONDecoder(object_pairs_hook=_members)

_PLACE: Final = re.compile(r"^(?P<what>.*?)(?: - at `(?P<where>[^`]*)`)?$", re.DOTALL)


def _invalid(error: msgspec.ValidationError) -> BadBody:
    """From the decoder's message: `Expected `int`, got `str` - at `$.delay``."""
    found = _PLACE.match(str(error))
    assert found is not None
    what, where = found["what"], found["where"] or "$"
    if isinstance(error.__cause__, _InvalidMember):
        inner = error.__cause__.error
        place = where if inner.field == "$" else f"{where}.{inner.field}"
        return BadBody(_plain(place), inner.reason)
    if unknown := re.match(r"Object contains unknown field `(.*)`$", what, re.DOTALL):
        return BadBody(_plain(f"{where}.{unknown[1]}"), "is not a known member")
    if missing := re.match(r"Object missing required field `(.*)`$", what, re.DOTALL):
        return BadBody(_plain(f"{where}.{missing[1]}"), "is missing")
    if bound := re.match(r"Expected `(?:int|float)` (>=|<=) (.*)$", what):
        word = "at least" if bound[1] == ">=" else "at most"
        return BadBody(_plain(where), f"must be {word} {bound[2]}")
    reason = f"cannot be accepted: {what[:1].lower()}{what[1:].replace('`', '')}"
    return BadBody(_plain(where), reason)


def _plain(place: str) -> str:
    """`$.items[3].delay` without the dollar; `$` alone is the whole body."""
    plain = place.removeprefix("$.")
    return place if plain == "$" else plain


def _malformed(body: bytes, message: str) -> str:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return f"is not UTF-8 (byte {error.start})"
    try:
        json.loads(body)
    except json.JSONDecodeError as error:
        return f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {message} ({error})"
    return f"is not JSON: {message}"


def convert_query(pairs: Sequence[tuple[str, str]], kind: Any) -> Any:
    """The query as a value of `kind`; only a list may have its name repeated."""
    lists = _lists(kind)
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name in lists:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise BadBody(name, "is given twice", of="query")
        else:
            given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False, dec_hook=_decode_hook)
    except msgspec.ValidationError as error:
        bad = _invalid(error)
        raise BadBody(bad.field, bad.reason, of="query") from error


@cache
def _lists(kind: Any) -> frozenset[str]:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return frozenset(field.encode_name for field in info.fields if _is_list(field.type))


def _is_list(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(_is_list(one) for one in kind.types)
    return isinstance(kind, msgspec.inspect.ListType | msgspec.inspect.VarTupleType)


def headers_of(raw: Sequence[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """Headers by name in lower case; the values of repeated ones are joined with commas."""
    headers: dict[str, str] = {}
    for name, value in raw:
        text = name.decode("latin-1")
        one = value.decode("latin-1")
        headers[text] = f"{headers[text]}, {one}" if text in headers else one
    return headers


Attempts: TypeAlias = Annotated[int, Meta(ge=ATTEMPTS[0], le=ATTEMPTS[-1])]
Priority: TypeAlias = Annotated[int, Meta(ge=PRIORITIES[0], le=PRIORITIES[-1])]
Fence: TypeAlias = Annotated[int, Meta(ge=1, le=2**63 - 1)]
