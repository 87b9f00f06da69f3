"""OpenAPI 3.1, made from the route table and its types: one truth for both."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.push.envelope import ATTEMPT, FENCE, SIMPLEQ, Envelope
from onefold.server.examples import EXAMPLES, PUSHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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

TAGS: Final[Mapping[str, str]] = {
    "jobs": "Jobs, their deliveries and the steps of a delivery.",
    "queues": "Queues: publish to them, configure them, replay their dead letters.",
    "claims": "Keys that one caller at a time has, with the result of the first.",
    "locks": "Locks with a lease and a fence.",
    "schedules": "Jobs by cron expressions.",
    "events": "What happens to jobs and keys, as a stream.",
    "keys": "Stored keys of every surface: look at them, free them, settle them.",
    "why": "Why a request was taken for a duplicate.",
    "push": "What Onefold sends to the endpoint of a queue.",
}
"""Every tag of an operation, and what it is about."""
PUSH_HEADERS: Final[Mapping[str, str]] = {
    "webhook-id": "The id of the job, the same for every delivery of it.",
    "webhook-timestamp": "When this delivery was signed: seconds since the epoch.",
    "webhook-signature": "Signatures as Standard Webhooks has them, one for each secret.",
    SIMPLEQ: "`sha256=` and the HMAC-SHA256 of the body in hexadecimal, as SimpleQ signs.",
    FENCE: "The number of this delivery. It grows with every delivery of the job.",
    ATTEMPT: "The number of this attempt, from 1.",
}
PUSH_ANSWERS: Final[Mapping[str, str]] = {
    "2XX": "Standard mode: the job is completed. Ack mode: it waits for its ack, nack or defer.",
    "410": "The queue is paused. No attempt is used up.",
    "429": "The job is deferred and the queue is held for as long as Retry-After says.",
    "503": "As 429.",
    "529": "As 429.",
    "default": "The attempt has failed. The next one comes by the backoff of the queue.",
}


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
    kinds = [ProblemDocument, Envelope, *_types(routes)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    refs = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Onefold",
            "version": version,
            "description": INTRODUCTION,
            "contact": {"name": "The Onefold maintainers"},
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": servers(""),
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "paths": paths,
        "webhooks": {"push": {"post": _push(refs[Envelope])}},
        "components": {
            "schemas": components,
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"apiKey": []}, {}],
    }


def servers(root: str) -> list[dict[str, str]]:
    """Where the paths begin: at the root of the host, or where the application is mounted."""
    return [{"url": root or "/", "description": "The server that this document came from"}]


def _types(routes: Iterable[Route]) -> list[Any]:
    """Of bodies and answers. The parameters of a query are described one by one."""
    found: dict[Any, None] = {}
    for route in routes:
        for kind in (route.body, *route.answers.values()):
            if kind is not None and not isinstance(kind, str):
                found[kind] = None
    return list(found)


def _operation(route: Route, refs: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": route.description,
        "tags": [route.path.split("/")[2]],
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_headers(route)],
        "responses": _responses(route, refs),
    }
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


def _push(envelope: Any) -> dict[str, Any]:
    return {
        "operationId": "pushJob",
        "summary": "A job is pushed to the endpoint of its queue",
        "description": (
            "One POST for each delivery. A job may be delivered more than once: `webhook-id` is the"
            " same each time, and the fence grows. Check the signature before the body is read."
            " A queue may add headers of its own."
        ),
        "tags": ["push"],
        "security": [],
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": name in (FENCE, ATTEMPT),
                "description": about,
                "schema": {"type": "string"},
            }
            for name, about in PUSH_HEADERS.items()
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": envelope,
                    "examples": {"usual": {"value": PUSHED}},
                }
            },
        },
        "responses": {status: {"description": about} for status, about in PUSH_ANSWERS.items()},
    }


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
