"""Writes the generated parts of docs/reference: `make reference`. Tests compare the pages with it.

1. The table of events, between the two `generated` comments of events.md.
2. The output of every `$ onefold … --help` in command-line.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from inspect import getdoc, getsource
from pathlib import Path
from typing import TYPE_CHECKING, get_args, get_type_hints

import msgspec

from onefold.model import event

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE = Path(__file__).parents[1] / "docs/reference"
_GENERATED = re.compile(r"(<!-- generated: \w+ -->\n).*?(<!-- end -->)", re.DOTALL)
_HELP = re.compile(r"^```console\n\$ (onefold [^\n]*--help)\n.*?^```$", re.MULTILINE | re.DOTALL)


def events() -> str:
    """A section for each event: when it is sent, and its fields."""
    return "\n".join(_section(kind) for kind in get_args(event.Event))


def _section(kind: type[msgspec.Struct]) -> str:
    hints = get_type_hints(kind)
    notes = dict(_field_notes(kind))
    rows = [
        f"| `{field.name}` | {_type_name(hints[field.name])} | {notes.get(field.name, '')} |"
        for field in msgspec.structs.fields(kind)
    ]
    table = "\n".join(["| field | type | |", "|---|---|---|", *rows])
    return f"## {kind.__name__}\n\n{getdoc(kind)}\n\n{table}\n"


def _field_notes(kind: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """The text that follows a field in the source."""
    source = getsource(kind)
    found = re.findall(r'^    (\w+): [^\n]+\n    """(.+?)"""', source, re.MULTILINE | re.DOTALL)
    for name, text in found:
        yield name, " ".join(text.split()).replace("|", r"\|")


def _type_name(hint: object) -> str:
    if choices := [choice for choice in get_args(hint) if isinstance(choice, str)]:
        return ", ".join(f"`{choice}`" for choice in choices)
    if parts := get_args(hint):
        return " or ".join(_type_name(part) for part in parts)
    return "None" if hint is type(None) else f"`{getattr(hint, '__name__', hint)}`"


def with_events(page: str) -> str:
    """The page of events with its generated part."""
    return _GENERATED.sub(lambda found: found[1] + events() + found[2], page)


def with_help(page: str) -> str:
    """The page of the command line with the help of every command that it shows."""
    commands = [found[1] for found in _HELP.finditer(page)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        helps = dict(zip(commands, pool.map(_help, commands), strict=True))
    return _HELP.sub(lambda found: f"```console\n$ {found[1]}\n{helps[found[1]]}```", page)


def _help(command: str) -> str:
    done = subprocess.run(
        [f"{sysconfig.get_path('scripts')}/onefold", *command.split()[1:]],
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def main() -> None:
    """Write the pages."""
    for name, rewrite in (("events.md", with_events), ("command-line.md", with_help)):
        page = REFERENCE / name
        page.write_text(rewrite(page.read_text()))


if __name__ == "__main__":
    main()
