"""Durations, times and JSON as text, and options that several commands share.

Typer reads the options of a command from its signature. `expanded` replaces one parameter of a
command with the parameters of the function that makes its value.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_type_hints

import typer

from onefold import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable


MOST_PROCESSES: Final = 1000
QUOTED: Final = 200
"""Characters of wrong JSON in an error."""
UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_DURATION: Final = re.compile(r"(?P<count>[0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(?P<unit>ms|s|m|h|d)?")


def duration(text: str, field: str) -> timedelta:
    """Read 30s, 5m, 1.5h, 250ms or 7d; a number without a unit is in seconds."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(field, f"must be like 30s, 5m or 250ms, or seconds, got {text!r}")
    try:
        return float(found["count"]) * UNITS[found["unit"] or "s"]
    except OverflowError:
        raise InvalidInput(field, f"is too long, got {text!r}") from None


def moment(text: str, field: str) -> datetime:
    """Read a day, a day and a time (in UTC by default), or how long ago: 2h."""
    if _DURATION.fullmatch(text.strip()) and not text.strip().isdigit():
        try:
            return datetime.now(UTC) - duration(text, field)
        except OverflowError:
            raise InvalidInput(field, f"is before the year 1, got {text!r}") from None
    return day_or_time(text, field, ", or how long ago, like 2h")


def day_or_time(text: str, field: str, alternative: str = "") -> datetime:
    """Read a day, or a day and a time (in UTC by default); errors also name the alternative."""
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(
            field,
            f"must be a time like 2026-03-29 or 2026-03-29T12:00:00+02:00{alternative},"
            f" got {text!r}",
        ) from None
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)


def json_value(text: str | bytes, field: str) -> Any:
    """Read JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(field, f"must be JSON, got {text[:QUOTED]!r}") from None


def examples(*lines: str) -> str:
    """Examples for the end of a command's help; a backspace keeps the lines as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def process_count(count: int) -> int:
    """Check `--processes`."""
    if not 1 <= count <= MOST_PROCESSES:
        reason = f"must be a whole number from 1 to {MOST_PROCESSES}, got {count}"
        raise InvalidInput("processes", reason)
    return count


def option(prefix: str, variable: str, metavar: str | None, text: str, *names: str) -> Any:
    """An option that is also read from the environment."""
    return typer.Option(
        *names, metavar=metavar, envvar=prefix + variable, show_envvar=False, help=text
    )


Command: TypeAlias = Callable[..., None]
Expand: TypeAlias = Callable[[Command], Command]


def expanded(name: str, make: Callable[..., Any]) -> Expand:
    """Give a command the options of `make` in place of its parameter `name`."""

    def expand(command: Command) -> Command:
        shared = _parameters(make)
        own = [parameter for parameter in _parameters(command) if parameter.name != name]
        names = [parameter.name for parameter in shared]

        @wraps(command)
        def run(**given: Any) -> None:
            made = make(**{shared_name: given.pop(shared_name) for shared_name in names})
            command(**given, **{name: made})

        together = [*own, *shared]
        run.__dict__["__signature__"] = inspect.Signature(together)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in together}
        return run

    return expand


def _parameters(function: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    """The parameters as keywords, with resolved annotations."""
    hints = get_type_hints(function, include_extras=True)
    return [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
        for parameter in inspect.signature(function).parameters.values()
    ]
