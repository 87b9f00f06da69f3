"""Exceptions that are remembered: how a step's final failure is stored, and raised again."""

from __future__ import annotations

import importlib
from typing import Any, Final

import msgspec

from onefold.errors import InvalidInput, StepFailed
from onefold.model.canonical import decode_payload, encode_payload
from onefold.model.delivery import encode_error
from onefold.model.step import Failure

LONGEST_ARGS: Final = 10_000


def failure_of(error: BaseException) -> Failure:
    """An exception to be stored."""
    told = encode_error(error)
    assert told is not None
    args = _args_of(error)
    raw = msgspec.Raw(told.encode())
    return Failure(raw) if args is None else Failure(raw, msgspec.Raw(args.encode()))


def _args_of(error: BaseException) -> str | None:
    try:
        text = encode_payload(list(error.args))
    except InvalidInput:
        return None
    # What comes back as something else would be another exception.
    same = decode_payload(text) == list(error.args)
    return text if same and len(text) <= LONGEST_ARGS else None


def raised_again(failure: Failure, label: str) -> Exception:
    """The exception as it was, or `StepFailed` where its type cannot be had any more."""
    told: dict[str, Any] = decode_payload(bytes(failure.error).decode())
    kind, reason = str(told.get("type")), str(told.get("message"))
    args = bytes(failure.args).decode()
    error = _rebuilt(kind, decode_payload(args)) if args else None
    if error is None:
        return StepFailed(step=label, error_type=kind, reason=reason)
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
    """The class of this path: the longest part of it that is a module, and what is inside."""
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            found = getattr(found, part, None)
        return found
    return None
