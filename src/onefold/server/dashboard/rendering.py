"""Templates and static files of the dashboard."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from onefold.errors import Needs
from onefold.model.wire import iso
from onefold.web.http import HttpResponse

with Needs("onefold[server]"):
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

if TYPE_CHECKING:
    from datetime import datetime, timedelta

MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
LONGEST_JSON: Final = 20_000
"""Characters of a value that a page shows."""
_JSON: Final = json.JSONEncoder(indent=2, ensure_ascii=False, default=str)
_TOKEN: Final = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*+(?:"|\\?\Z))'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<word>\b(?:true|false|null)\b)"
)
"""A text may end where the value was shortened: it must not be read again from each quote in it."""


class StaticFiles:
    """The files of `static/`. Their URLs have a digest, so that browsers keep them for good."""

    @cached_property
    def contents(self) -> dict[str, bytes]:
        """All files by name."""
        folder = files("onefold.server.dashboard").joinpath("static")
        found = {file.name: file.read_bytes() for file in folder.iterdir()}
        return {
            name: found[name] for name in sorted(found) if name.rpartition(".")[2] in MEDIA_TYPES
        }

    @cached_property
    def digest(self) -> str:
        """Changes with each change of a file."""
        total = hashlib.sha256()
        for name, content in self.contents.items():
            total.update(f"{name}\n{len(content)}\n".encode() + content)
        return total.hexdigest()[:12]

    def response(self, digest: str, name: str) -> HttpResponse | None:
        """A file; None if there is none of this name."""
        content = self.contents.get(name)
        if content is None:
            return None
        # An older page may name an older digest: it receives the file, but must not keep it.
        kept = "public, max-age=31536000, immutable" if digest == self.digest else "no-cache"
        media_type = MEDIA_TYPES[name.rpartition(".")[2]]
        return HttpResponse(200, (("content-type", media_type), ("cache-control", kept)), content)


STATIC: Final = StaticFiles()


def environment() -> Environment:
    """The templates, with the filters that they use."""
    made = Environment(
        loader=PackageLoader("onefold.server.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ago": ago,
        "clock": clock,
        "duration": duration,
        "json": pretty_json,
        "moment": moment,
        "tick": tick,
    }
    return made


def pretty_json(value: Any) -> Markup:
    """JSON with indents and colours. Of a long value the beginning: no more of it is encoded."""
    text = ""
    for piece in _JSON.iterencode(value):
        text += piece
        if len(text) > LONGEST_JSON:
            break
    is_long = len(text) > LONGEST_JSON
    text = text[:LONGEST_JSON]
    pieces: list[Markup] = []
    end = 0
    for token in _TOKEN.finditer(text):
        pieces.append(escape(text[end : token.start()]))
        end = token.end()
        name = "key" if text.startswith(":", end) else token.lastgroup
        pieces.append(Markup('<span class="json-{}">{}</span>').format(name, token[0]))
    pieces.append(escape(text[end:]))
    if is_long:
        note = Markup("\n<em>… Only the first {} characters are shown.</em>")
        pieces.append(note.format(f"{LONGEST_JSON:,}"))
    return Markup("").join(pieces)


def moment(value: datetime | None) -> Markup:
    """A time, exactly; the browser shows it in the visitor's time zone."""
    return _time(value, "%Y-%m-%d %H:%M:%S %Z", "full")


def tick(value: datetime | None) -> Markup:
    """A time, exactly, in its own time zone."""
    return _time(value, "%Y-%m-%d %H:%M:%S %Z")


def clock(value: datetime | None) -> Markup:
    """A time of the last day; the browser shows it in the visitor's time zone."""
    return _time(value, "%H:%M %Z", "clock")


def ago(value: datetime | None) -> Markup:
    """How long ago a time is, or in how long; the browser keeps it up to date."""
    return _time(value, "%Y-%m-%d %H:%M %Z", "ago")


def _time(value: datetime | None, shown: str, script: str = "") -> Markup:
    """`script` is how the browser shows it, if it does not show the text of the server."""
    if value is None:
        return Markup("&ndash;")
    title = f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(
        iso(value), title, script and Markup(' data-time="{}"').format(script), f"{value:{shown}}"
    )


def duration(value: timedelta | None) -> str:
    """A duration with two parts at most: `1 h 5 min`, `2.4 s`, `18 ms`."""
    if value is None:
        return "-"
    seconds = value.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    shown = [f"{count} {unit}" for count, unit in parts if count]
    return " ".join(shown[:2])
