"""A hook of mkdocs: draws the diagrams of the pages as SVG, so that the site needs no script.

A code host draws the same `mermaid` blocks. Two kinds are drawn here: `stateDiagram-v2`, whose
states have fixed places, and `sequenceDiagram`. Any other kind or line stops the build.
"""

from __future__ import annotations

import math
import re
from html import escape
from typing import Any

_BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINE_HEIGHT = 18


class CannotDraw(Exception):
    """A diagram has a kind or a line that is not drawn here."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace every mermaid block of a page with its drawing."""
    return _BLOCK.sub(lambda block: _figure(block[1]), markdown)


def _figure(text: str) -> str:
    kind, *lines = [line.strip() for line in text.splitlines() if line.strip()]
    # They end a statement, or begin a tag, where a code host draws the diagram.
    if wrong := next((line for line in lines if re.search(r"[;#<]", line)), None):
        raise CannotDraw(f"tools/site.py: remove ; # and < from this line of a diagram: {wrong}")
    if kind == "stateDiagram-v2":
        drawing = _states(lines)
    elif kind == "sequenceDiagram":
        drawing = _sequence(lines)
    else:
        raise CannotDraw(f"tools/site.py does not draw {kind!r}: use one of the two kinds it draws")
    return f'<figure class="diagram">{drawing}</figure>\n'


def _svg(width: float, height: float, parts: list[str], description: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" '
        f'style="max-width:{width:g}px;min-width:{min(width, 520):g}px" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(description)}</title>'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" class="head"/></marker></defs>'
        + "".join(parts)
        + "</svg>"
    )


def _text(x: float, y: float, text: str, of: str = "label") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{of}">{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, of: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" class="{of}"/>'


def _width_of(text: str) -> float:
    return 7.0 * len(text) + 10


# --- states ---------------------------------------------------------------------------------------

_STATE_WIDTH, _STATE_HEIGHT = 116, 44
_PLACES = {
    "[*]": (20, 290),
    "queued": (220, 290),
    "running": (620, 290),
    "completed": (830, 290),
    "cancelled": (420, 30),
    "dead": (420, 510),
}
# How far the middle of an arrow is moved to its left.
_BENDS = {
    ("queued", "running"): 60,
    ("running", "queued"): 60,
    ("queued", "cancelled"): 80,
    ("cancelled", "queued"): 60,
    ("queued", "dead"): 60,
    ("dead", "queued"): 80,
    ("completed", "queued"): 740,
}


def _states(lines: list[str]) -> str:
    """Arrows between the same two states are one arrow with several labels."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        found = re.fullmatch(r"(\S+) --> (\S+): (.+)", line)
        if found is None or not {found[1], found[2]} <= _PLACES.keys():
            raise CannotDraw(f"tools/site.py cannot draw this line of a state diagram: {line}")
        arrows.setdefault((found[1], found[2]), []).append(found[3])
    drawn = [_arrow(start, end, labels) for (start, end), labels in arrows.items()]
    # No line crosses a label.
    parts = [line for line, _ in drawn] + [label for _, label in drawn]
    for name, (x, y) in _PLACES.items():
        if name == "[*]":
            parts.append(f'<circle cx="{x}" cy="{y}" r="9" class="head"/>')
        else:
            left, top = x - _STATE_WIDTH / 2, y - _STATE_HEIGHT / 2
            parts.append(_box(left, top, _STATE_WIDTH, _STATE_HEIGHT, "node"))
            parts.append(_text(x, y + 5, name, "name"))
    return _svg(900, 690, parts, "The states of a job and the changes between them")


def _arrow(start: str, end: str, labels: list[str]) -> tuple[str, str]:
    """The line, and its labels on paper."""
    curve, at_x, at_y = _loop(start) if start == end else _curve(start, end)
    wide = max(map(_width_of, labels))
    high = _LINE_HEIGHT * len(labels) + 4
    return (
        f'<path d="{curve}" class="arrow" marker-end="url(#arrow)"/>',
        _box(at_x - wide / 2, at_y - high / 2, wide, high, "paper")
        + "".join(
            _text(at_x, at_y - high / 2 + 15 + _LINE_HEIGHT * number, label)
            for number, label in enumerate(labels)
        ),
    )


def _loop(state: str) -> tuple[str, float, float]:
    """A line from below a state to its left side, and the place of its labels."""
    x, y = _PLACES[state]
    left, bottom = x - _STATE_WIDTH / 2, y + _STATE_HEIGHT / 2
    curve = f"M{left + 20:g} {bottom:g}C{left:g} {bottom + 60:g} {left - 80:g} {bottom + 30:g} "
    return f"{curve}{left:g} {y + 12:g}", left - 38, bottom + 30


def _curve(start: str, end: str) -> tuple[str, float, float]:
    """A line from one state to another, and the place of its labels."""
    (x1, y1), (x2, y2) = _PLACES[start], _PLACES[end]
    length = math.hypot(x2 - x1, y2 - y1)
    bend = _BENDS.get((start, end), 0)
    middle_x = (x1 + x2) / 2 + (y2 - y1) / length * bend
    middle_y = (y1 + y2) / 2 - (x2 - x1) / length * bend
    from_x, from_y = _edge((x1, y1), (middle_x, middle_y), radius=start == "[*]")
    to_x, to_y = _edge((x2, y2), (middle_x, middle_y), radius=False)
    curve = f"M{from_x:g} {from_y:g}Q{middle_x:g} {middle_y:g} {to_x:g} {to_y:g}"
    return curve, (from_x + 2 * middle_x + to_x) / 4, (from_y + 2 * middle_y + to_y) / 4


def _edge(
    centre: tuple[float, float], towards: tuple[float, float], *, radius: bool
) -> tuple[float, float]:
    """Where the line from the centre of a state leaves its box, or its circle."""
    x, y = towards[0] - centre[0], towards[1] - centre[1]
    if radius:
        scale = 9 / math.hypot(x, y)
    else:
        scale = min(
            _STATE_WIDTH / 2 / abs(x) if x else math.inf,
            _STATE_HEIGHT / 2 / abs(y) if y else math.inf,
        )
    return centre[0] + x * scale, centre[1] + y * scale


# --- sequences ------------------------------------------------------------------------------------


def _sequence(lines: list[str]) -> str:
    names: dict[str, str] = {}
    steps: list[tuple[str, str, str, str]] = []
    for line in lines:
        if declared := re.fullmatch(r"participant (\w+)(?: as (.+))?", line):
            names[declared[1]] = declared[2] or declared[1]
        elif message := re.fullmatch(r"(\w+)(--?>>|--?x)(\w+): (.+)", line):
            steps.append((message[1], message[3], message[2], message[4]))
        elif note := re.fullmatch(r"Note over (\w+)(?:,(\w+))?: (.+)", line):
            steps.append((note[1], note[2] or note[1], "note", note[3]))
        else:
            raise CannotDraw(f"tools/site.py cannot draw this line of a sequence diagram: {line}")
    columns = _columns(list(names), steps)
    bottom = 64 + 46 * len(steps)
    width = max(columns.values()) + _margin(steps)
    parts: list[str] = []
    for name, x in columns.items():
        wide = max(_width_of(names[name]) + 16, 90)
        parts.append(f'<path d="M{x:g} 40V{bottom:g}" class="lifeline"/>')
        parts.append(_box(x - wide / 2, 6, wide, 34, "node"))
        parts.append(_text(x, 28, names[name], "name"))
    for number, (start, end, kind, label) in enumerate(steps):
        parts.append(_step(columns[start], columns[end], 84 + 46 * number, kind, label))
    return _svg(width, bottom + 10, parts, "; ".join(label for *_, label in steps))


def _margin(steps: list[tuple[str, str, str, str]]) -> float:
    """The room beside the outer participants, which the widest note may need."""
    notes = [_width_of(label) / 2 + 12 for *_, kind, label in steps if kind == "note"]
    return max([110.0, *notes])


def _columns(names: list[str], steps: list[tuple[str, str, str, str]]) -> dict[str, float]:
    """The place of each participant: far enough apart for the labels between neighbours."""
    gaps = [150.0] * len(names)
    for start, end, _, label in steps:
        first, last = sorted((names.index(start), names.index(end)))
        if last > first:
            needed = (_width_of(label) + 20) / (last - first)
            for place in range(first, last):
                gaps[place] = max(gaps[place], needed)
    places: dict[str, float] = {}
    x = _margin(steps)
    for name, gap in zip(names, gaps, strict=True):
        places[name] = x
        x += gap
    return places


def _step(start: float, end: float, y: float, kind: str, label: str) -> str:
    if kind == "note":
        wide = max(_width_of(label) + 10, end - start + 60)
        return _box((start + end - wide) / 2, y - 20, wide, 30, "note") + _text(
            (start + end) / 2, y, label
        )
    style = "arrow answer" if kind.startswith("--") else "arrow"
    if kind.endswith("x"):
        stop = end - (end - start) * 0.25
        line = (
            f'<path d="M{start:g} {y:g}H{stop:g}" class="{style}"/>'
            f'<path d="M{stop - 6:g} {y - 6:g}l12 12m0 -12l-12 12" class="cross"/>'
        )
    else:
        line = f'<path d="M{start:g} {y:g}H{end:g}" class="{style}" marker-end="url(#arrow)"/>'
    return line + _text((start + end) / 2, y - 7, label)
