"""What a client would rather have: the Accept and Accept-Encoding of a request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from onefold.surfaces.http.request import Request

_QUALITY: Final = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")
# What is longer says no preference that is worth the time.
_LONGEST: Final = 4096
_JSON: Final = (("application", "problem+json"), ("application", "json"))
_HTML: Final = (("text", "html"),)


def prefers_html(request: Request) -> bool:
    """Whether a page is wanted more than JSON; in doubt, JSON."""
    ranges = _weighted(request, "accept")
    return _quality(ranges, _HTML) > _quality(ranges, _JSON)


def accepts_coding(request: Request, coding: str) -> bool:
    """Whether a body in this content coding may be sent.

    Who says nothing is taken not to understand any: a body without a coding is always right.
    """
    weights = dict(_weighted(request, "accept-encoding"))
    return weights.get(coding, weights.get("*", 0.0)) > 0


def _weighted(request: Request, name: str) -> list[tuple[str, float]]:
    """The elements of a list with their weights; one with a malformed weight is left out."""
    text = ",".join(request.values(name))
    if len(text) > _LONGEST:
        return []
    found: list[tuple[str, float]] = []
    for element in text.split(","):
        value, *parameters = (part.strip(" \t").lower() for part in element.split(";"))
        quality = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        if value and _QUALITY.fullmatch(quality):
            found.append((value, float(quality)))
    return found


def _quality(ranges: list[tuple[str, float]], types: tuple[tuple[str, str], ...]) -> float:
    """The best weight that any of the types has by its most specific range."""
    weights = dict(ranges)
    best = 0.0
    for main, sub in types:
        for wanted in (f"{main}/{sub}", f"{main}/*", "*/*"):
            if wanted in weights:
                best = max(best, weights[wanted])
                break
    return best
