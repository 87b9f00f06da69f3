"""Finds the application that a command works for: `module:app`."""

from __future__ import annotations

import logging
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onefold import InvalidInput, Onefold, UsageError
from onefold.cli import without_passwords

if TYPE_CHECKING:
    from types import ModuleType

log: logging.Logger = logging.getLogger("onefold.cli")


def load_app(target: str) -> Onefold:
    """Import the module, also from the current directory, and return its object."""
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise InvalidInput(
            "app", f"must be like module:app (a module and its Onefold object), got {target!r}"
        )
    found: Any = _import(module_name, target)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InvalidInput("app", f"{target!r}: {_name(found)} has no {part!r}") from None
    if not isinstance(found, Onefold):
        raise InvalidInput(
            "app", f"{target!r} must be an Onefold object, but is of type {type(found).__name__}"
        )
    return found


def _import(name: str, target: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, error) from error
        raise InvalidInput(
            "app",
            f"{target!r}: no module {error.name!r} is in this directory or installed. Run the"
            " command in the directory of the module",
        ) from None
    except Exception as error:
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> UsageError:
    """Log the traceback without passwords: a line of the module may contain a database URL."""
    text = without_passwords(traceback.format_exc())
    log.error("The import of %s failed.\n%s", name, text)
    return UsageError(f"The module {name!r} cannot be imported: {error!r}.")


def _name(found: object) -> str:
    return f"the {type(found).__name__} {getattr(found, '__name__', '')!r}"
