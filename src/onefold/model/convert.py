"""Values of an application as plain JSON, and back: what msgspec knows, and models of pydantic.

Pydantic need not be installed: its models are known by their methods.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from onefold.errors import InvalidInput
from onefold.model.canonical import canonical_json, is_object, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MASK: Final = "**********"
"""What pydantic writes for a secret."""


def to_json(value: Any, field: str, *, sorts: bool = False) -> Any:
    """A value as plain JSON; what cannot be is an `InvalidInput` of `field`.

    Sets have another order in every process, and keys are made of what is stored: a set is sorted,
    and `sorts` says so of those inside of other values.
    """
    try:
        if isinstance(value, set | frozenset):
            return sorted(_to_builtins(value, None), key=canonical_json)
        if not sorts:
            return _to_builtins(value, None)
        try:
            return _to_builtins(value, "deterministic")
        except TypeError:  # elements that cannot be compared
            return _to_builtins(value, None)
    except InvalidInput as error:
        raise InvalidInput(field, error.reason) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(field, f"cannot be written as JSON: {error}") from error


def from_json(value: Any, kind: Any) -> Any:
    """Plain JSON in a type of its own; `msgspec.ValidationError` where it does not fit."""
    return msgspec.convert(value, kind, str_keys=True, dec_hook=_validated)


def is_model(value: object) -> bool:
    """Whether a class, or an object, is one of pydantic's."""
    return hasattr(value, "model_validate_json") and hasattr(value, "model_dump")


def dumped(value: Any) -> Any:
    """A model as the JSON that becomes it again: without what it computes from the rest."""
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


def _to_builtins(value: Any, order: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_encoded, order=order)


def _encoded(value: Any) -> Any:
    return dumped(value) if is_model(value) else plain(value)


def _validated(kind: type, value: Any) -> Any:
    model: Any = kind
    # Through JSON, for a strict model takes a date that is text from there only.
    text = msgspec.json.encode(value)
    if _takes_names(kind):
        return model.model_validate_json(text, by_name=True, by_alias=True)
    return model.model_validate_json(text)


@cache
def _takes_names(kind: Any) -> bool:
    """Whether a model can be told to take its fields by name, aliases or not: from 2.11 on."""
    return "by_name" in inspect.signature(kind.model_validate_json).parameters


def _holds(value: Any, wanted: Callable[[Any], bool]) -> bool:
    """Whether anything inside of a dumped model is as wanted."""
    inside: Iterable[Any] = ()
    if is_object(value):
        inside = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inside = cast("Iterable[Any]", value)
    return wanted(value) or any(_holds(one, wanted) for one in inside)
