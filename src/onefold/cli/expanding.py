"""Options that several commands share, written once.

Typer reads the options of a command off its signature. `expanded` replaces one parameter of a
command by the parameters of the function that makes its value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterable


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
    """By name, and with their annotations as they are meant."""
    hints = get_type_hints(function, include_extras=True)
    return [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
        for parameter in inspect.signature(function).parameters.values()
    ]
