"""The stored form of a step's arguments, its result and its failure.

Arguments are compared by a digest. A result or an exception is read back as it was.
"""

from __future__ import annotations

import importlib
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast, get_type_hints

import msgspec

from onefold.errors import InvalidInput, StepFailed
from onefold.model.claim import encode_result
from onefold.model.delivery import encode_error
from onefold.model.json_text import (
    decode_payload,
    dumped,
    encode_payload,
    from_json,
    is_model,
    is_object,
    sorted_payload,
    to_json,
)
from onefold.model.step import Failure
from onefold.model.unique import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def fingerprint_of(
    label: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    passed_before: int = 0,
) -> str:
    """The digest of a step's arguments, positional or by name.

    Defaults are not part of it: a new parameter with a default must not stop the jobs under way.
    `passed_before` is the number of arguments that the function receives before these.
    """
    try:
        given = sorted_payload(
            [_plain(value) for value in _bound(function, args, kwargs, passed_before)]
        )
    except InvalidInput as error:
        raise InvalidInput(
            "arguments",
            f"of the step {label!r} cannot be compared with those of a rerun: {error.reason}. Give"
            " it plain values, or a function without arguments that knows the rest.",
        ) from error
    return fingerprint("arguments", given)


def _bound(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], before: int
) -> list[Any]:
    """Names and values in turn; without a signature, the values in their order."""
    try:
        bound = inspect.signature(function).bind(*[None] * before, *args, **kwargs)
    except (TypeError, ValueError):
        return [list(args), dict(kwargs)]
    found = list(bound.arguments.items())[before:]
    return [part for item in found for part in item]


def encoded(value: Any) -> str:
    """The text of a result; `InvalidInput` if it cannot be stored, or is too large."""
    return encode_result(to_json(value, "result"))


def _plain(value: Any) -> Any:
    """Pydantic models are dumped by their own method, also inside of lists and other containers."""
    if is_model(value) and not isinstance(value, type):
        return dumped(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("Sequence[Any]", value)]
    if is_object(value):
        return {key: _plain(one) for key, one in value.items()}
    return value


def decoded(text: str, function: Callable[..., Any]) -> Any:
    """A stored result, converted to the declared return type of the function if possible."""
    value, kind = decode_payload(text), _returned(function)
    if kind in (Any, None, type(None)):
        return value
    try:
        return from_json(value, kind)
    except (TypeError, msgspec.ValidationError):
        return value


def _returned(function: Callable[..., Any]) -> Any:
    while isinstance(function, partial):
        function = function.func
    try:
        return get_type_hints(function).get("return", Any)
    except Exception:  # noqa: BLE001 - a hint that cannot be read is no hint
        return Any


LONGEST_ARGS: Final = 10_000


def failure_of(error: BaseException) -> Failure:
    """The stored form of an exception."""
    text = encode_error(error)
    assert text is not None
    args = _args_of(error)
    raw = msgspec.Raw(text.encode())
    return Failure(raw) if args is None else Failure(raw, msgspec.Raw(args.encode()))


def _args_of(error: BaseException) -> str | None:
    try:
        text = encode_payload(list(error.args))
    except InvalidInput:
        return None
    # Arguments that JSON would change would make another exception.
    same = decode_payload(text) == list(error.args)
    return text if same and len(text) <= LONGEST_ARGS else None


def step_failed(failure: Failure, label: str) -> StepFailed:
    """The error for a step that failed for good."""
    stored: dict[str, Any] = decode_payload(bytes(failure.error).decode())
    kind, reason = str(stored.get("type")), str(stored.get("message"))
    return StepFailed(step=label, error_type=kind, reason=reason)


def raised_again(failure: Failure, label: str) -> Exception:
    """The exception as it was, or `StepFailed` if its type cannot be imported any more."""
    failed = step_failed(failure, label)
    args = bytes(failure.args).decode()
    error = _rebuilt(failed.error_type, decode_payload(args)) if args else None
    if error is None:
        return failed
    error.add_note(f"The step {label!r} failed so for good in an earlier attempt of this job.")
    return error


def _rebuilt(path: str, args: list[Any]) -> Exception | None:
    kind = _imported(path)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return None
    try:
        error = kind(*args)
    except Exception:  # noqa: BLE001 - a constructor of its own, with other arguments
        return None
    return error if list(error.args) == args else None


def _imported(path: str) -> object:
    """The class of this path: its longest importable module, and the attributes after it.

    A path without a module is that of a builtin.
    """
    parts = path.split(".") if "." in path else ["builtins", path]
    for end in range(len(parts) - 1, 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            found = getattr(found, part, None)
        return found
    return None
