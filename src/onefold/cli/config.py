"""Configuration files of workers and servers.

A worker reads `[tool.onefold.worker]` of pyproject.toml, or `[worker]` of onefold.toml; a server
reads the tables `serve`. A flag overrides the environment, and the environment overrides the file.
The file is the nearest one with settings of Onefold, from the current directory upwards;
onefold.toml comes first.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from onefold import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DATABASE: Final = "sqlite:///onefold.db"
"""The default database."""
TIME: Final = str | int | float

WORKER: Final[Mapping[str, Any]] = {
    "app": str,
    "queues": str | list[str],
    "concurrency": int,
    "processes": int,
    "prefetch": int,
    "lease": TIME,
    "heartbeat": TIME,
    "poll": TIME,
    "grace": TIME,
    "name": str,
    "chores": bool,
    "quiet": bool,
    "log_format": str,
    "log_level": str,
}
SERVE: Final[Mapping[str, Any]] = {
    "database": str,
    "schema": str,
    "host": str,
    "port": int,
    "processes": int,
    "push": bool,
    "push_concurrency": int,
    "push_allow": str | list[str],
    "secret": str,
    "migrate": bool,
    "max_body": int,
    "request_timeout": TIME,
    "database_wait": TIME,
    "body_timeout": TIME,
    "header_timeout": TIME,
    "grace": TIME,
    "tls_certificate": str,
    "tls_key": str,
    "access_log": bool,
    "log_format": str,
    "log_level": str,
}
KEYS: Final[Mapping[str, Mapping[str, Any]]] = {"worker": WORKER, "serve": SERVE}
"""By command: every key, and the types of its value. The names are those of the flags."""


class Configuration(NamedTuple):
    """The settings of a file, named like the flags."""

    path: Path | None
    """None if no file has settings."""
    settings: Mapping[str, str | int | bool]


def read_configuration(folder: Path, command: str = "worker") -> Configuration:
    """The settings of the nearest file for a command; the whole file is checked."""
    for parent in (folder, *folder.parents):
        for path in (parent / "onefold.toml", parent / "pyproject.toml"):
            table = _table(path)
            if table is not None:
                prefix = "" if path.name == "onefold.toml" else "tool.onefold."
                _refuse_unknown(table, KEYS, prefix.rstrip(".") or "onefold", path)
                found = table.get(command, {})
                return Configuration(path, _read(found, command, f"{prefix}{command}", path))
    return Configuration(None, {})


def configured(command: str, key: str) -> str | None:
    """A setting of the nearest file for a command, or None."""
    found = read_configuration(Path.cwd(), command).settings.get(key)
    return None if found is None else str(found)


def _table(path: Path) -> Mapping[str, Any] | None:
    try:
        whole = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except ValueError as error:
        raise InvalidInput(str(path), f"cannot be read as TOML: {error}") from error
    if path.name == "onefold.toml":
        return whole
    table = whole.get("tool", {}).get("onefold")
    return None if table is None else _typed(table, dict[str, Any], "tool.onefold", path)


def _read(found: object, command: str, name: str, path: Path) -> dict[str, str | int | bool]:
    table: Mapping[str, Any] = _typed(found, dict[str, Any], name, path)
    named = {key.replace("-", "_"): value for key, value in table.items()}
    _refuse_unknown(named, KEYS[command], name, path)
    return {
        key: _as_flag(_typed(value, KEYS[command][key], f"{name}.{key}", path))
        for key, value in named.items()
    }


def _as_flag(value: str | float | bool | list[str]) -> str | int | bool:  # noqa: FBT001 - a value
    """The value as a flag would have it."""
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
            raise InvalidInput(
                f"{name}.{key} in {path}", f"is not a setting; the settings are {listed}"
            )
