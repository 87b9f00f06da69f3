"""`/v1/docs`: Swagger UI, from files of this package, over the OpenAPI document.

The browser loads nothing from other hosts, and runs no code but these files.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from onefold.server.problems import NOT_FOUND, refused
from onefold.server.request_context import Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onefold.server.request_context import RequestContext

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of the page only. The icons of Swagger UI are `data:` images in its styles."""
MEDIA_TYPES: Final[Mapping[str, str]] = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
"""The files of the page."""
_COMMON: Final = (("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer"))
_CACHED: Final = ("cache-control", "public, max-age=3600")


async def reference(request: RequestContext) -> Reply:
    """This document for people."""
    del request
    kind = ("content-type", "text/html; charset=utf-8")
    return Reply(200, _read("page.html"), (kind, ("content-security-policy", POLICY), *_COMMON))


async def reference_file(request: RequestContext) -> Reply:
    """A file of the reference page."""
    name = request.path["file"]
    if name not in MEDIA_TYPES:
        raise refused(NOT_FOUND, f"The reference has no file {name[:100]!r}. See /v1/docs.")
    headers = (("content-type", MEDIA_TYPES[name]), _CACHED, ("vary", "accept-encoding"), *_COMMON)
    if not name.startswith("swagger-ui"):
        return Reply(200, _read(name), headers)
    stored = _read(f"{name}.gz")
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Reply(200, stored, (*headers, ("content-encoding", "gzip")))
    return Reply(200, gzip.decompress(stored), headers)


@cache
def _read(name: str) -> bytes:
    return files("onefold.server").joinpath("reference", name).read_bytes()
