"""JSON text: payloads as they are stored, and as they are hashed; application values to JSON.

A payload has three forms. The *stored* form (`encode_payload`) is compact; JSON that arrives as
bytes (`msgspec.Raw`) is stored unchanged. The *sorted* form (`sorted_payload`) has its members in
order, for our own digests. The *canonical* form (`canonical_json`) is equal in all languages, byte
for byte; it is slower.

`to_json` and `from_json` convert what msgspec knows, and pydantic models. Pydantic does not have to
be installed: a model is recognised by its methods.
"""

from __future__ import annotations

import inspect
import json
import math
from decimal import Decimal
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

import msgspec

from onefold.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


MAX_DEPTH: Final = 256
"""How deep a payload may nest. A fixed bound far below the recursion limit: what one process could
store from a shallow stack, another must be able to read from a deep one."""

_SHORTEST_TOO_DEEP: Final = 2 * (MAX_DEPTH + 1)
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_A_BRACKET: Final = bytes(set(range(256)) - set(b"[]{}"))

_WORD: Final = 2**63

# Numbers from 1e-6 up to 1e21 are written without an exponent.
_PLAIN_DIGITS: Final = 21
_PLAIN_ZEROS: Final = 6


def encode_payload(value: Any) -> str:
    """The JSON text that is stored for a payload.

    Datetimes, UUIDs, dataclasses and msgspec structs are written as msgspec writes them. Numbers
    that are keys of a dictionary become text. A `msgspec.Raw` is stored unchanged. A value that is
    not JSON is an `InvalidInput`.
    """
    return read_payload(value)[0]


def read_payload(value: Any) -> tuple[str, Any]:
    """The text that is stored for a payload, and its value; JSON that arrived as bytes is read."""
    if not isinstance(value, msgspec.Raw):
        return _encode(_stored, value), value
    text = _text(value)
    value = decode_payload(text)
    _check_depth(text)
    return text, value


def sorted_payload(value: Any) -> str:
    """The payload's JSON with its members, and the elements of its sets, in sorted order."""
    text, value = read_payload(value)
    return sorted_json(text, value).decode()


def sorted_json(text: str, value: Any) -> bytes:
    """`sorted_payload` of a value that `read_payload` has checked, in UTF-8."""
    try:
        return _sorted.encode(value)
    except (InvalidInput, TypeError, ValueError):
        # msgspec sorts text only. In the stored form, all names are text and all sets are lists.
        return _encode(_sorted, decode_payload(text)).encode()


def _text(raw: bytes | msgspec.Raw) -> str:
    try:
        return bytes(raw).decode()
    except UnicodeError as error:
        raise _not_text() from error


def decode_payload(text: str | bytes | msgspec.Raw) -> Any:
    """The plain JSON value of a stored payload; integers of any size, exactly."""
    try:
        return _decoder.decode(text)
    except RecursionError as error:
        raise _too_deep() from error
    except msgspec.ValidationError:
        return _decode_wide(text if isinstance(text, str) else _text(text))
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidInput("payload", f"is not JSON: {error}") from error


def canonical_json(value: Any) -> bytes:
    """The canonical form of a plain JSON value (as `decode_payload` returns it), in UTF-8.

    RFC 8785 with two differences: a comma follows every member and element, the last one too (other
    implementations hash this form), and integers of any size are exact.
    """
    if is_object(value) and (flat := _canonical_flat(value)) is not None:
        return flat
    pieces: list[str] = []
    # An explicit stack, so that a deep payload does not exhaust Python's. An entry is a value and
    # its depth, or finished text with the depth -1.
    left: list[tuple[Any, int]] = [(value, 0)]
    while left:
        item, depth = left.pop()
        if depth < 0:
            pieces.append(item)
        elif depth == MAX_DEPTH and isinstance(item, dict | list):
            raise _too_deep()
        elif is_object(item):
            left.extend(reversed(_object(item, depth + 1)))
        elif is_array(item):
            left.extend(reversed(_array(item, depth + 1)))
        else:
            pieces.append(_scalar(item))
    try:
        return "".join(pieces).encode()
    except UnicodeEncodeError as error:
        raise _not_text() from error


def _canonical_flat(members: dict[str, Any]) -> bytes | None:
    """The canonical form of a small object, which most keys are made from; None if it is not one.

    Small: names in ASCII, and values that are text, booleans, null or integers below 2**63.
    """
    try:
        if not "".join(members).isascii():
            return None
        text = "{"
        for name in sorted(members):
            value: object = members[name]
            kind = type(value)
            if isinstance(value, str):
                text += f"{_quoted(name)}:{_quoted(value)},"
            elif isinstance(value, int) and kind is int and -_WORD <= value < _WORD:
                text += f"{_quoted(name)}:{value},"
            elif value is None or kind is bool:
                text += f"{_quoted(name)}:{'null' if value is None else str(value).lower()},"
            else:
                return None
        return f"{text}}}".encode()
    except (TypeError, UnicodeEncodeError):
        return None


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a plain JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Whether a plain JSON value is an array."""
    return isinstance(value, list)


def _array(elements: list[Any], depth: int) -> list[tuple[Any, int]]:
    """The stack entries of an array whose elements have that depth."""
    parts: list[tuple[Any, int]] = [("[", -1)]
    for element in elements:
        parts += ((element, depth), (",", -1))
    parts.append(("]", -1))
    return parts


def _object(members: dict[str, Any], depth: int) -> list[tuple[Any, int]]:
    """The stack entries of an object whose members have that depth."""
    parts: list[tuple[Any, int]] = [("{", -1)]
    for name in _in_order(members):
        parts += ((_quoted(name) + ":", -1), (members[name], depth), (",", -1))
    parts.append(("}", -1))
    return parts


def _in_order(members: dict[str, Any]) -> list[str]:
    """The names by UTF-16 code units, which differs from code points beyond the basic plane."""
    try:
        if "".join(members).isascii():
            return sorted(members)
    except TypeError as error:
        raise InvalidInput("payload", "must have text for the names of its members") from error
    return sorted(members, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, int):
        return _digits(value)
    if isinstance(value, float):
        return _ecmascript(value)
    raise _unsupported(value)


def _digits(value: int) -> str:
    try:
        return int.__repr__(value)
    except ValueError:
        # Python does not write more than 4300 digits at once; Decimal has no limit.
        return str(Decimal(int(value)))


def _ecmascript(value: float) -> str:
    """The number as `Number.prototype.toString` writes it (ECMA-262, 6.1.6.1.20)."""
    if not math.isfinite(value):
        raise _not_finite()
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = float.__repr__(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The decimal point stands after `point` of the digits (before them, if negative).
    point = len(digits) - len(fraction) + int(exponent or 0)
    digits = digits.rstrip("0")
    if len(digits) <= point <= _PLAIN_DIGITS:
        return sign + digits.ljust(point, "0")
    if 0 < point <= _PLAIN_DIGITS:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -_PLAIN_ZEROS < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"


def _encode(encoder: msgspec.json.Encoder, value: Any) -> str:
    try:
        try:
            text = encoder.encode(value).decode()
        except UnicodeError:
            raise
        except ValueError:
            # An integer of more than 4300 digits. If it was not, the same error is raised again.
            text = encoder.encode(_with_digits(_to_builtins(value))).decode()
        # msgspec copies a Raw inside of the value without reading it. This reads all of the text.
        _skimmer.decode(text)
        # msgspec writes null for NaN and the infinities.
        if "null" in text and _has_non_finite(value):
            raise _not_finite()
    except RecursionError as error:
        raise _too_deep() from error
    except UnicodeError as error:
        raise _not_text() from error
    except (TypeError, ValueError, msgspec.DecodeError) as error:
        raise InvalidInput("payload", f"cannot be written as JSON: {error}") from error
    if len(text) >= _SHORTEST_TOO_DEEP:
        _check_depth(text)
    return text


def _with_digits(value: Any) -> Any:
    """The value with its integers as text."""
    if is_object(value):
        return {name: _with_digits(member) for name, member in value.items()}
    if _is_sequence(value):
        return [_with_digits(element) for element in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return msgspec.Raw(_digits(value).encode())
    return value


def _has_non_finite(value: Any) -> bool:
    left = [_to_builtins(value)]
    while left:
        item = left.pop()
        if is_object(item):
            left.extend(item.values())
        elif _is_sequence(item):
            left.extend(item)
        elif isinstance(item, float) and not math.isfinite(item):
            return True
    return False


def _check_depth(text: str) -> None:
    """Reject text that nests too deeply."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    # Keep the brackets outside strings and remove the innermost pairs, level by level: a few passes
    # at the speed of C. A walk in Python would cost more than the encoding itself.
    outside = text.replace("\\\\", "").replace('\\"', "").split('"')[::2]
    brackets = "".join(outside).encode().translate(_SQUARE, _NOT_A_BRACKET)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return
    raise _too_deep()


def _decode_wide(text: str) -> Any:
    """Read integers of more than 4300 digits, which msgspec rejects."""
    try:
        return json.loads(text, parse_int=_wide, parse_float=_finite, parse_constant=_finite)
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        raise InvalidInput("payload", f"is not JSON: {error}") from error


def _wide(digits: str) -> int:
    return int(Decimal(digits))


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _not_finite()
    return value


def plain(value: object) -> object:
    """The base value of a subclass that msgspec does not encode, such as Django's SafeString."""
    if value is None or isinstance(value, bool | tuple | frozenset):
        # msgspec encodes such values. It calls this function only if one is a key.
        raise InvalidInput("payload", f"must have text or numbers for keys, got {value!r}")
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    raise _unsupported(value)


def _is_sequence(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def _to_builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True, enc_hook=plain)


def _unsupported(value: object) -> InvalidInput:
    kind = type(value)
    return InvalidInput(
        "payload", f"holds a {kind.__module__}.{kind.__qualname__}, which JSON cannot hold"
    )


def _not_finite() -> InvalidInput:
    return InvalidInput("payload", "holds NaN or an infinity, which JSON cannot hold")


def _not_text() -> InvalidInput:
    return InvalidInput("payload", "holds text that is not valid Unicode, such as a lone surrogate")


def _too_deep() -> InvalidInput:
    return InvalidInput("payload", f"must not nest deeper than {MAX_DEPTH} levels")


_stored: Final = msgspec.json.Encoder(enc_hook=plain)
_sorted: Final = msgspec.json.Encoder(enc_hook=plain, order="sorted")
_decoder: Final = msgspec.json.Decoder()
_skimmer: Final = msgspec.json.Decoder(msgspec.Raw)
_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode


MASK: Final = "**********"
"""What pydantic writes for a secret."""


def to_json(value: Any, field: str, *, sorts: bool = False) -> Any:
    """A value as plain JSON; an `InvalidInput` of `field` if that is not possible.

    The order of a set differs between processes, and keys are derived from stored values. So a set
    is sorted; `sorts` also sorts the sets inside of other values.
    """
    try:
        if isinstance(value, set | frozenset):
            return sorted(_value_to_builtins(value), key=canonical_json)
        if not sorts:
            return _value_to_builtins(value)
        try:
            return _value_to_builtins(value, order="deterministic")
        except TypeError:  # elements that cannot be compared
            return _value_to_builtins(value)
    except InvalidInput as error:
        raise InvalidInput(field, error.reason) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(field, f"cannot be written as JSON: {error}") from error


def from_json(value: Any, kind: Any) -> Any:
    """Plain JSON as a value of the type `kind`; `msgspec.ValidationError` if it does not match."""
    return msgspec.convert(value, kind, str_keys=True, dec_hook=_validated)


def is_model(value: object) -> bool:
    """Whether a class, or an object, is a pydantic model."""
    return hasattr(value, "model_validate_json") and hasattr(value, "model_dump")


def dumped(value: Any) -> Any:
    """A pydantic model as JSON that can be read back: without computed fields."""
    found = value.model_dump(mode="json", round_trip=True)
    if _holds(found, lambda one: one == MASK):
        written = value.model_dump(round_trip=True)
        if _holds(written, lambda one: hasattr(one, "get_secret_value")):
            raise InvalidInput(
                "payload",
                f"holds a secret in {type(value).__name__}, which pydantic writes as {MASK}. Leave"
                " it where it is, and pass on how to find it.",
            )
    return found


def _encoded(value: Any) -> Any:
    return dumped(value) if is_model(value) else plain(value)


_value_to_builtins: Final[Callable[..., Any]] = partial(
    msgspec.to_builtins, str_keys=True, enc_hook=_encoded
)


def _validated(kind: type, value: Any) -> Any:
    model: Any = kind
    # Through JSON, for a strict model takes a date that is text from there only.
    text = msgspec.json.encode(value)
    if _takes_names(kind):
        return model.model_validate_json(text, by_name=True, by_alias=True)
    return model.model_validate_json(text)


@cache
def _takes_names(kind: Any) -> bool:
    """Whether a model accepts field names in spite of aliases: pydantic 2.11 and later."""
    return "by_name" in inspect.signature(kind.model_validate_json).parameters


def _holds(value: Any, wanted: Callable[[Any], bool]) -> bool:
    """Whether anything inside of a dumped model is as wanted."""
    inside: Iterable[Any] = ()
    if is_object(value):
        inside = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inside = cast("Iterable[Any]", value)
    return wanted(value) or any(_holds(one, wanted) for one in inside)
