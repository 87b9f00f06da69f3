"""What a project says about its workers: the table `[tool.onefold.worker]` of pyproject.toml.

A flag beats the environment, and the environment beats the file. The file is the nearest
pyproject.toml, from the present folder upwards, that has anything to say about Onefold.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from onefold import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

KEYS: Final[Mapping[str, Any]] = {
    "app": str,
    "queues": str | list[str],
    "concurrency": int,
    "processes": int,
    "prefetch": int,
    "lease": str | int | float,
    "heartbeat": str | int | float,
    "poll": str | int | float,
    "grace": str | int | float,
    "name": str,
    "chores": bool,
    "log_format": str,
    "log_level": str,
}
"""Every key, and the types that its value may have. The names are those of the flags."""


class Configuration(NamedTuple):
    """What a file says, in the words of the command line."""

    path: Path | None
    """None where no file says anything."""
    said: Mapping[str, str | int | bool]


def read_configuration(folder: Path) -> Configuration:
    """What the nearest pyproject.toml says; all of it is checked."""
    for path in (parent / "pyproject.toml" for parent in (folder, *folder.parents)):
        table = _table(path)
        if table is not None:
            _refuse_unknown(table, {"worker"}, "tool.onefold", path)
            return Configuration(path, _read(table.get("worker", {}), path))
    return Configuration(None, {})


def _table(path: Path) -> Mapping[str, Any] | None:
    try:
        whole = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except ValueError as error:
        raise InvalidInput(str(path), f"cannot be read as TOML: {error}") from error
    table = whole.get("tool", {}).get("onefold")
    return None if table is None else _typed(table, dict[str, Any], "tool.onefold", path)


def _read(worker: object, path: Path) -> dict[str, str | int | bool]:
    table: Mapping[str, Any] = _typed(worker, dict[str, Any], "tool.onefold.worker", path)
    named = {name.replace("-", "_"): value for name, value in table.items()}
    _refuse_unknown(named, KEYS, "tool.onefold.worker", path)
    return {
        name: _as_flag(_typed(value, KEYS[name], f"tool.onefold.worker.{name}", path))
        for name, value in named.items()
    }


def _as_flag(value: str | float | bool | list[str]) -> str | int | bool:  # noqa: FBT001 - a value
    """As it would be written on a command line."""
    if isinstance(value, list):
        return ",".join(value)
    return str(value) if isinstance(value, float) else value


def _typed(value: object, kind: Any, name: str, path: Path) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason = f"has a value of the wrong type. {error}"
        raise InvalidInput(f"{name} in {path}", reason) from error


def _refuse_unknown(table: Mapping[str, Any], known: Iterable[str], name: str, path: Path) -> None:
    for key in table:
        if key not in known:
            listed = ", ".join(known)
            raise InvalidInput(f"{name}.{key} in {path}", f"is no setting; there are {listed}")
