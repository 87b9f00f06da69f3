"""Exceptions as they are stored: type, message, traceback, causes.

Nothing here may fail, whatever an exception does: a failure that cannot be stored would look like
a vanished worker. Values of local variables are not stored: they may be secret.
"""

from __future__ import annotations

import traceback
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from onefold.errors import OnefoldError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

TEXT_LENGTH: Final = 10_000
TRACE_LENGTH: Final = 8_000
"""Characters of a traceback that are kept: its end, where the failure is."""
CAUSE_LENGTH: Final = 2_000
"""Characters of a cause's message, and of its traceback."""
CAUSES: Final = 5
FRAMES: Final = 100

MACHINERY: Final = frozenset(
    {
        "asyncio",
        "concurrent",
        "contextlib",
        "contextvars",
        "multiprocessing",
        "onefold",
        "threading",
    }
)
"""The top packages whose frames are between Onefold and the functions that it calls."""
HEAD: Final = "Traceback (most recent call last):\n"


def described(error: BaseException) -> dict[str, Any]:
    """An exception as a mapping: `type`, `message`, `causes`, and `traceback` if it was raised."""
    details = _described(error, TEXT_LENGTH, TRACE_LENGTH)
    if causes := [_described(cause, CAUSE_LENGTH, CAUSE_LENGTH) for cause in _causes(error)]:
        details["causes"] = causes
    return details


def _described(error: BaseException, text_length: int, trace_length: int) -> dict[str, Any]:
    details: dict[str, Any] = {"type": type_name(error), "message": shown(error, text_length)}
    trace = [_trace(error, trace_length), *map(_part, islice(_parts(error), CAUSES))]
    if any(trace):
        details["traceback"] = "\n".join(filter(None, trace))
    return details


def _parts(error: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group, as that of a task group; those of a group inside it, too."""
    is_group = issubclass(type(error), BaseExceptionGroup)
    parts: Sequence[BaseException] = getattr(error, "exceptions", ()) if is_group else ()
    for part in parts:
        yield part
        yield from _parts(part)


def _part(error: BaseException) -> str:
    return f"{_trace(error, CAUSE_LENGTH)}{type_name(error)}: {shown(error, CAUSE_LENGTH)}\n"


def type_name(error: BaseException) -> str:
    """The type name by which failures can be found, as Python prints it."""
    kind = type(error)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def shown(value: object, length: int = TEXT_LENGTH) -> str:
    """A value as text that can be stored, cut if it is long."""
    try:
        text = str(value)
    except Exception as error:  # noqa: BLE001 - __str__ of another author may raise anything
        text = f"a {type(value).__qualname__} that cannot be shown: {type(error).__qualname__}"
    return printable(text, length)


def printable(text: str, length: int = TEXT_LENGTH) -> str:
    """Invalid Unicode is escaped, and so is NUL, which PostgreSQL cannot store."""
    clean = text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
    return clean if len(clean) <= length else clean[:length] + "…"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Its causes or contexts, as Python prints them; without cycles."""
    seen = {id(error)}
    for _ in range(CAUSES):
        context = None if error.__suppress_context__ else error.__context__
        cause = error.__cause__ or context
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause
        error = cause


def _trace(error: BaseException, length: int) -> str:
    frames = _frames(error)
    if not frames:
        return ""
    try:
        lines = traceback.StackSummary.extract(iter(frames), capture_locals=False).format()
    except Exception as failure:  # noqa: BLE001 - source files may be anything by now
        return f"no traceback: {type(failure).__qualname__}"
    text = "".join(lines)
    # From the front, by whole lines.
    kept = text if len(text) <= length else "…\n" + text[-length:].partition("\n")[2]
    return printable(HEAD + kept, 2 * length)


def _frames(error: BaseException) -> Sequence[tuple[FrameType, int]]:
    """The last frames of the handler and of what it calls; all of them if there are none.

    A refusal by Onefold, as of a payload, has none of its own: the message says what is wrong.
    Between them are those of what the handler calls through Onefold, as the function of a step.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    found: list[tuple[FrameType, int]] = []
    is_ours = True
    for frame, line in frames:
        package = _package(frame)
        is_ours = package == "onefold" or (is_ours and package in MACHINERY)
        if not is_ours:
            found.append((frame, line))
    if isinstance(error, OnefoldError):
        return found[-FRAMES:]
    return (found or frames)[-FRAMES:]


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]
