"""OpenAPI 3.1, made from the route table and its types: one truth for both."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.server.examples import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onefold.server.route import Route

_REF: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"{(\w+)(?::\w+)?}")
_ALWAYS: Final = (400, 401, 403, 405, 429, 500, 503)
_WITH_BODY: Final = (408, 413, 415)

INTRODUCTION: Final = """\
Jobs that are published once, however often you send them; pushed to your endpoints, signed; and the
toolkit (claims, locks, steps) for handlers in any language. Times are ISO 8601 in UTC, durations
are seconds. Errors are `application/problem+json` (RFC 9457) with a stable `code`. Every POST takes
an `Idempotency-Key` header: send the same request again with the same key, and it happens once.
"""


class ProblemDocument(msgspec.Struct, kw_only=True):
    """What went wrong, and what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    requestId: str  # noqa: N815 - as it is on the wire
    error: Any
    """As SimpleQ's SDK reads it: a sentence, or the errors by field."""


def document(routes: Sequence[Route], *, version: str) -> dict[str, Any]:
    """The whole document."""
    kinds = [ProblemDocument, *_types(routes)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    refs = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Onefold", "version": version, "description": INTRODUCTION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"apiKey": []}, {}],
    }


def _types(routes: Iterable[Route]) -> list[Any]:
    found: dict[Any, None] = {}
    for route in routes:
        for kind in (route.body, route.query, *route.answers.values()):
            if kind is not None and not isinstance(kind, str):
                found[kind] = None
    return list(found)


def _operation(route: Route, refs: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.path.split("/")[2] if route.path.startswith("/v1/") else "operations"],
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_headers(route)],
        "responses": _responses(route, refs),
    }
    if route.description:
        operation["description"] = route.description
    if route.scope is None:
        operation["security"] = []
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {
                "application/json": {
                    "schema": refs[route.body],
                    "examples": {"usual": {"value": EXAMPLES[route.name]}},
                }
            },
        }
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    (_,), components = msgspec.json.schema_components([route.query], ref_template=_REF)
    schema = components[route.query.__name__]
    required = set(schema.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": given}
        for name, given in schema["properties"].items()
    ]


def _headers(route: Route) -> list[dict[str, Any]]:
    if route.method != "POST" or route.keyed == "none":
        return []
    return [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same for every retry of one request; new for every new one.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }
    ]


def _responses(route: Route, refs: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kind in route.answers.items():
        said: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if isinstance(kind, str):
            said["content"] = {kind: {"schema": {"type": "string"}}}
        elif kind is not None:
            said["content"] = {"application/json": {"schema": refs[kind]}}
        responses[str(status)] = said
    for status in _problems(route):
        key = str(status)
        if key not in responses:
            responses[key] = {
                "description": HTTPStatus(status).phrase,
                "content": {"application/problem+json": {"schema": refs[ProblemDocument]}},
            }
    return responses


def _problems(route: Route) -> list[int]:
    own = {*_ALWAYS, *route.problems}
    if route.body is not None or route.method == "POST":
        own.update(_WITH_BODY)
    if route.method == "POST" and route.keyed != "none":
        own.update((409, 422))
    if "{" in route.path:
        own.add(404)
    return sorted(own)
