"""Fingerprints: the digest of what must be the same in a request and its retry.

Method, path, query and Content-Type are always part of it. The body is compared as bytes (`raw`),
as a JSON value, as form fields, by some of its fields, or by a function of the application. The
prefix (`1.raw:`) is the rule that made it, so that old fingerprints stay comparable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import parse_qs, parse_qsl, urlencode

import msgspec

from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.model.json_text import is_array, is_object
from onefold.web.http import HttpRequest, codings, decoded
from onefold.web.idempotency import body as form_body
from onefold.web.idempotency.body import Digested, digested
from onefold.web.problems import NOTHING_SELECTED, Refused, make, too_large

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onefold.web.idempotency.policy import RoutePolicy


_MISSING: Final = object()
# No array is that long.
_DIGITS: Final = 10
_NOT_CANONICAL: Final = (ValueError, RecursionError)
"""Errors for what is not JSON, or JSON that two readers may understand in two ways."""

_sorted = msgspec.json.Encoder(order="sorted")


def _read(body: bytes) -> Any:
    """The value of a JSON text, with its numbers as they were written."""
    return json.loads(
        body.decode(),
        object_pairs_hook=_members,
        parse_int=_literal,
        parse_float=_literal,
        parse_constant=_reject,
    )


def _select(value: Any, paths: Iterable[str]) -> dict[str, Any]:
    """The values at some paths (`payment.amount`, `items.0.id`) that exist."""
    found = {path: _value_at(value, path.split(".")) for path in paths}
    return {path: one for path, one in found.items() if one is not _MISSING}


def _remove(value: Any, path: str) -> None:
    """Remove the value at a path, if it exists."""
    *parents, last = path.split(".")
    parent = _value_at(value, parents)
    if is_object(parent):
        parent.pop(last, None)


def _value_at(value: Any, path: list[str]) -> Any:
    for name in path:
        if is_array(value):
            is_index = name.isascii() and name.isdecimal() and len(name) < _DIGITS
            value = value[int(name)] if is_index and int(name) < len(value) else _MISSING
        else:
            value = value.get(name, _MISSING) if is_object(value) else _MISSING
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is there twice")
    return members


def _literal(digits: str) -> msgspec.Raw:
    return msgspec.Raw(digits.encode())


def _reject(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


VERSION: Final = 1
_LONGEST_RECIPE: Final = 400
_MEDIA_TYPE: Final = "content-type"
_CODING: Final = "content-encoding"


class Fields(msgspec.Struct, frozen=True):
    """Some fields of a body, by name: of JSON `payment.amount` or `items.0.id`, of a form `amount`.

    Without `names`, all but those excluded.
    """

    names: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    empty: Literal["refuse", "raise"] = "refuse"
    """If a body has none of them: reject the request, or raise `InvalidInput`."""

    def __post_init__(self) -> None:
        named = checks.listed(self.names, "names", "names of fields")
        named += checks.listed(self.exclude, "exclude", "names of fields")
        if not named:
            raise InvalidInput("names", "or exclude must name a field")


How: TypeAlias = (
    Literal["raw", "json", "form"] | Fields | Callable[[HttpRequest, bytes], bytes | str]
)


class _Recipe(msgspec.Struct, frozen=True):
    """The rule of a fingerprint: what a policy says about it, without its function."""

    mode: str
    names: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    canonical_query: bool = False
    decode: bool = False


_RAW: Final = {
    (canonical, decode): _Recipe("raw", canonical_query=canonical, decode=decode)
    for canonical in (False, True)
    for decode in (False, True)
}
"""The recipes of most routes."""


@lru_cache(maxsize=256)  # Each request needs it, and a route has one.
def _as_text(recipe: _Recipe) -> str:
    options = [("name", name) for name in recipe.names]
    options += [("exclude", name) for name in recipe.exclude]
    options += [("header", name) for name in recipe.headers]
    options += [("query", "any-order")] * recipe.canonical_query
    options += [("body", "decoded")] * recipe.decode
    spelled = urlencode(options)
    if len(spelled) > _LONGEST_RECIPE:
        spelled = f"digest={_digest([spelled.encode()])}"
    return f"{VERSION}.{recipe.mode}" + (f"?{spelled}" if spelled else "")


class _Input(msgspec.Struct, frozen=True):
    """What a fingerprint is made of."""

    recipe: _Recipe
    request: HttpRequest
    read: Digested
    how: How


def fingerprint(request: HttpRequest, body: Digested, policy: RoutePolicy) -> str:
    """The fingerprint of a request by the options of its route."""
    return _make(_recipe(policy), request, body, policy.fingerprint)


def fingerprint_like(
    stored: str, request: HttpRequest, body: Digested, policy: RoutePolicy
) -> str | None:
    """The fingerprint of a request by the rule of a stored one; None if that rule is unknown.

    If it is equal to `stored`, it is the same request: only the options have changed since.
    """
    made, colon, _ = stored.rpartition(":")
    if not colon:
        return None
    current = _recipe(policy)
    recipe = current if _as_text(current) == made else _parse(made)
    if recipe is None or (recipe.mode == "custom" and not callable(policy.fingerprint)):
        return None
    try:
        return _make(recipe, request, body, policy.fingerprint)
    except (Refused, InvalidInput):
        return None


def _recipe(policy: RoutePolicy) -> _Recipe:
    how = policy.fingerprint
    if how == "raw" and not policy.fingerprint_headers:
        return _RAW[policy.canonical_query, policy.decode]
    mode = "fields" if isinstance(how, Fields) else "custom" if callable(how) else how
    return _Recipe(
        mode,
        tuple(sorted(set(how.names))) if isinstance(how, Fields) else (),
        tuple(sorted(set(how.exclude))) if isinstance(how, Fields) else (),
        tuple(sorted({name.lower() for name in policy.fingerprint_headers})),
        policy.canonical_query,
        policy.decode,
    )


def _parse(made: str) -> _Recipe | None:
    head, _, spelled = made.partition("?")
    version, _, mode = head.partition(".")
    options = parse_qs(spelled, keep_blank_values=True)
    if version != str(VERSION) or mode not in _MODES or "digest" in options:
        return None
    return _Recipe(
        mode,
        tuple(options.get("name", ())),
        tuple(options.get("exclude", ())),
        tuple(options.get("header", ())),
        "query" in options,
        "body" in options,
    )


def _make(recipe: _Recipe, request: HttpRequest, read: Digested, how: How) -> str:
    coding = ",".join(codings(request.values(_CODING)))
    if recipe.decode and coding and read.body is not None:
        plain = decoded(read.body, codings(request.values(_CODING)))
        if plain is not None:
            read, coding = digested(plain), ""
    media_type = request.value(_MEDIA_TYPE) or ""
    parts = [
        request.method,
        request.path,
        _query(request.query, any_order=recipe.canonical_query),
        media_type if recipe.mode == "raw" else form_body.media_type_of(media_type),
        coding,
        *(_value(request, name) for name in recipe.headers),
    ]
    essence = _MODES[recipe.mode](_Input(recipe, request, read, how))
    head = [part.encode("utf-8", "surrogatepass") for part in parts]
    return f"{_as_text(recipe)}:{_digest([*head, *essence])}"


def _value(request: HttpRequest, name: str) -> str:
    # A header that is missing is not one that is empty.
    return msgspec.json.encode(request.values(name)).decode()


def _query(query: str, *, any_order: bool) -> str:
    if not any_order:
        return query
    return urlencode(sorted(parse_qsl(query, keep_blank_values=True, encoding="latin-1")))


def _raw(source: _Input) -> list[bytes]:
    return [b"bytes", source.read.sha256.encode()]


def _json(source: _Input) -> list[bytes]:
    if source.read.body is None:
        return _raw(source)
    try:
        return [b"json", _sorted.encode(_read(source.read.body))]
    except _NOT_CANONICAL:
        return _raw(source)


def _form(source: _Input) -> list[bytes]:
    found = _form_fields(source.request, source.read)
    return _raw(source) if found is None else [b"form", *_spelled(found)]


def _fields(source: _Input) -> list[bytes]:
    found = _form_fields(source.request, source.read)
    if found is not None:
        chosen = [field for field in found if _is_chosen(field.name, source.recipe)]
        # A form with only its key and a button has no other fields.
        if chosen or not source.recipe.names:
            return [b"form", *_spelled(chosen)]
    else:
        selected = _select_json(_in_memory(source.read), source.recipe)
        if selected is not None:
            return [b"json", selected]
    if isinstance(source.how, Fields) and source.how.empty == "raise":
        raise InvalidInput(
            "fingerprint", f"selects nothing of this body by {source.recipe.names!r}"
        )
    raise Refused(make(NOTHING_SELECTED))


def _custom(source: _Input) -> list[bytes]:
    assert callable(source.how)
    essence = source.how(source.request, _in_memory(source.read))
    if not essence:
        raise Refused(make(NOTHING_SELECTED))
    return [b"custom", essence.encode() if isinstance(essence, str) else essence]


_MODES: Final[dict[str, Callable[[_Input], list[bytes]]]] = {
    "raw": _raw,
    "json": _json,
    "form": _form,
    "fields": _fields,
    "custom": _custom,
}


def _in_memory(read: Digested) -> bytes:
    if read.body is None:
        raise Refused(too_large(read.limit))
    return read.body


def _form_fields(request: HttpRequest, read: Digested) -> Sequence[form_body.Field] | None:
    if read.fields is not None or read.body is None:
        return read.fields
    return form_body.fields(read.body, request.value(_MEDIA_TYPE) or "")


def _spelled(found: Iterable[form_body.Field]) -> list[bytes]:
    return [
        msgspec.json.encode((field.name, field.filename, field.media_type, field.sha256))
        for field in found
    ]


def _is_chosen(name: str, recipe: _Recipe) -> bool:
    return name not in recipe.exclude and (not recipe.names or name in recipe.names)


def _select_json(body: bytes, recipe: _Recipe) -> bytes | None:
    """The chosen fields of a JSON body in one spelling; None if it has none of them."""
    try:
        value = _read(body)
        for path in recipe.exclude:
            _remove(value, path)
        if recipe.names:
            value = _select(value, recipe.names)
            if not value:
                return None
        return _sorted.encode(value)
    except _NOT_CANONICAL:
        return None


def _digest(parts: Iterable[bytes]) -> str:
    """Of parts, each with its length in front, so that no two lists are one text."""
    return hashlib.sha256(b"".join([b"%d:%b" % (len(part), part) for part in parts])).hexdigest()
