"""The OpenAPI 3.1 document, made from the route table and its types, and the reference page.

Each route with a body has an example, which the tests send. The page is HTML without scripts.
"""

from __future__ import annotations

import json
import re
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.model.delivery import PushEnvelope
from onefold.model.queue import CONFIDENTIAL
from onefold.model.wire import camel, schema_of
from onefold.push.deliver import ATTEMPT, FENCE, SIMPLEQ
from onefold.web.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onefold.server.request_context import Route


EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "putQueue": {
        "endpoint": "https://example.com/hooks/payments",
        "mode": "ack",
        "maxAttempts": 5,
        "backoff": {"type": "exponential", "base": 2, "factor": 2, "cap": 600},
        "ackTimeout": 120,
        "rateLimit": "100/s",
    },
    "publishJob": {
        "payload": {"orderId": "9482", "amountCents": 4999},
        "idempotencyKey": "order:9482:charge",
    },
    "publishJobs": {
        "items": [
            {"payload": {"userId": 1}, "uniqueKey": "digest:1", "uniqueWhile": "queued"},
            {"payload": {"userId": 2}, "uniqueKey": "digest:2", "delay": 60},
        ]
    },
    "heartbeatJob": {"lease": 60, "fence": 1},
    "deferJob": {"retryAfter": 30, "reason": "the bank is closed", "scope": "job", "fence": 1},
    "nackJob": {"retryable": True, "reason": "card declined", "fence": 2},
    "acknowledgeJob": {"result": {"receipt": "r-17"}, "fence": 3},
    "cancelJob": {"reason": "the order was withdrawn"},
    "replayJob": {"fresh": False},
    "replayDead": {"reason": "failed", "limit": 100},
    "claim": {"scope": "import", "key": "sha256:9f86d0", "lease": 60, "takeover": "rerun"},
    "renewClaim": {"lease": 60},
    "settleClaim": {"result": {"rows": 1200}},
    "releaseClaim": {},
    "lock": {"name": "nightly report", "ttl": 30},
    "renewLock": {"ttl": 30},
    "releaseLock": {},
    "putStep": {"action": "begin", "fence": 1},
    "rotateSecret": {"overlap": 86400},
    "putSchedule": {"cron": "0 6 * * *", "tz": "Europe/Berlin", "queue": "payments"},
    "settleKey": {"scope": "import", "result": {"rows": 0}},
    "releaseKey": {"scope": "import"},
}
"""Examples by the name of the operation."""
PUSHED: Final[Mapping[str, Any]] = {
    "id": "019a8f3c-5b2e-7a41-9c3d-2f6e8d1b4a70",
    "queue": "payments",
    "payload": {"orderId": "9482", "amountCents": 4999},
    "attempt": 1,
    "maxAttempts": 5,
    "deferCount": 0,
    "createdAt": "2026-11-16T09:30:00.000Z",
    "kind": "payments",
    "fence": 1,
    "generation": 0,
}
"""What Onefold itself sends."""


_CONFIDENTIAL: Final = frozenset(map(camel, CONFIDENTIAL))
_REF: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"{(\w+)(?::\w+)?}")
_ALWAYS: Final = (400, 401, 403, 405, 429, 500, 503)
_WITH_BODY: Final = (408, 413, 415)
_WITH_KEY: Final = (409, 422)
_NAME: Final = {"type": "string", "minLength": 1}
_KEY: Final = {"type": "string", "minLength": 1, "maxLength": 255}

INTRODUCTION: Final = """\
Jobs that are stored once, however often they are published, and pushed to your endpoints, signed;
and the toolkit (claims, locks, steps) for handlers in any language. Times are ISO 8601 in UTC,
durations are seconds. Errors are `application/problem+json` (RFC 9457) with a stable `code`. Every
POST accepts an `Idempotency-Key` header: a request that is repeated with the same key runs once.
"""

TAGS: Final[Mapping[str, str]] = {
    "jobs": "Jobs, their deliveries and the steps of a delivery.",
    "queues": "Queues: publish to them, configure them, replay their dead letters.",
    "claims": "Keys that one caller at a time has, with the result of the first.",
    "locks": "Locks with a lease and a fence.",
    "schedules": "Jobs by cron expressions.",
    "statistics": "What has happened lately.",
    "workers": "The processes that run jobs.",
    "events": "Events of jobs and keys, as a stream.",
    "keys": "Stored keys of every surface: find, release and settle them.",
    "why": "Why a request was a duplicate.",
    "push": "Requests of Onefold to the endpoint of a queue.",
}
"""The tags of the operations, with their descriptions."""
PUSH_HEADERS: Final[Mapping[str, str]] = {
    "webhook-id": "The id of the job, the same for every delivery of it.",
    "webhook-timestamp": "When this delivery was signed: seconds since the epoch.",
    "webhook-signature": "Signatures in the format of Standard Webhooks, one for each secret.",
    SIMPLEQ: "`sha256=` and the HMAC-SHA256 of the body in hexadecimal, as SimpleQ signs.",
    FENCE: "The number of this delivery. It grows with every delivery of the job.",
    ATTEMPT: "The number of this attempt, from 1.",
}
PUSH_ANSWERS: Final[Mapping[str, str]] = {
    "2XX": "Standard mode: the job is completed. Ack mode: it waits for its ack, nack or defer.",
    "410": "The queue is paused. No attempt is used up.",
    "429": "The job is deferred and the queue is held for the time of Retry-After.",
    "503": "As 429.",
    "529": "As 429.",
    "default": "The attempt has failed. The backoff of the queue sets the time of the next one.",
}


def document(routes: Sequence[Route], *, version: str) -> dict[str, Any]:
    """The whole document."""
    kinds: dict[Any, None] = {Problem: None, PushEnvelope: None}
    for route in routes:
        for kind in (route.body, *route.answers.values()):
            if kind is not None and not isinstance(kind, str):
                kinds[kind] = None
    schemas, components = msgspec.json.schema_components(
        kinds, ref_template=_REF, schema_hook=schema_of
    )
    for schema in components.values():
        _require_written(schema)
    components["Problem"] = _problem_document(components["Problem"])
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
        "webhooks": {"push": {"post": _push(refs[PushEnvelope])}},
        "components": {
            "schemas": components,
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"apiKey": []}, {}],
    }


def servers(root: str) -> list[dict[str, str]]:
    """The URL of the server: the root of the host, or the path where it is mounted."""
    return [{"url": root or "/", "description": "The server that this document came from"}]


def _require_written(schema: dict[str, Any]) -> None:
    """Require the members of a response that have a default: the server writes them, too."""
    if schema.get("additionalProperties") is False:  # a body
        return
    members = schema.get("properties", {})
    written = {name for name, member in members.items() if "default" in member} - _CONFIDENTIAL
    schema["required"] = sorted({*schema.get("required", ()), *written})


def _problem_document(schema: dict[str, Any]) -> dict[str, Any]:
    """The members of a problem; retry_after and link are headers, and extra are more members."""
    members = {name: {"type": "string"} for name in ("instance", "requestId")}
    for name in ("type", "title", "status", "detail", "code"):
        members[name] = schema["properties"][name]
    about = "For SimpleQ's SDK: a sentence, or the errors by field."
    members["error"] = {"description": about}
    return {**schema, "properties": members, "required": list(members)}


def _operation(route: Route, refs: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": route.description,
        "tags": [route.path.split("/")[2]],
        "parameters": _parameters(route),
        "responses": _responses(route, refs),
    }
    if route.scope is None:
        operation["security"] = []
    if route.body is not None:
        required = not route.body_optional
        operation["requestBody"] = _body(refs[route.body], EXAMPLES[route.name], required=required)
    return operation


def _body(schema: Any, example: Any, *, required: bool = True) -> dict[str, Any]:
    content = {"schema": schema, "examples": {"usual": {"value": example}}}
    return {"required": required, "content": {"application/json": content}}


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
            _parameter(name, "header", _NAME, about, required=name in (FENCE, ATTEMPT))
            for name, about in PUSH_HEADERS.items()
        ],
        "requestBody": _body(envelope, PUSHED),
        "responses": {status: {"description": about} for status, about in PUSH_ANSWERS.items()},
    }


def _parameters(route: Route) -> list[dict[str, Any]]:
    found = [
        _parameter(name, "path", _NAME, required=True) for name in _PARAMETER.findall(route.path)
    ]
    if route.query is not None:
        _, components = msgspec.json.schema_components([route.query], ref_template=_REF)
        query = components[route.query.__name__]
        for name, schema in query["properties"].items():
            required = name in query.get("required", ())
            found.append(_parameter(name, "query", schema, required=required))
    if route.method == "POST":
        about = "The same for every retry of one request; new for every new one."
        found.append(_parameter("Idempotency-Key", "header", _KEY, about))
    return found


def _parameter(
    name: str, place: str, schema: Any, about: str = "", *, required: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": required,
        "schema": schema,
        "description": about,
    }


def _responses(route: Route, refs: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kind in route.answers.items():
        if isinstance(kind, str):
            responses[str(status)] = _response(status, kind, {"type": "string"})
        else:
            responses[str(status)] = _response(status, "application/json", refs.get(kind))
    statuses = {*_ALWAYS, *route.problems}
    if route.body is not None or route.method == "POST":
        statuses.update(_WITH_BODY)
    if route.method == "POST":
        statuses.update(_WITH_KEY)
    if "{" in route.path:
        statuses.add(404)
    for status in sorted(statuses):
        problem = _response(status, "application/problem+json", refs[Problem])
        responses.setdefault(str(status), problem)
    return responses


def _response(status: int, media_type: str, schema: Any) -> dict[str, Any]:
    response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if schema is not None:
        response["content"] = {media_type: {"schema": schema}}
    return response


_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
section { border-top: 1px solid #ccc; padding: .5rem 0 1rem; }
h2 code { font-size: 1rem; } table { border-collapse: collapse; }
td, th { padding: .2rem 1rem .2rem 0; text-align: left; vertical-align: top; }
.method { display: inline-block; min-width: 4rem; font-weight: bold; }
"""


def page(described: dict[str, Any]) -> str:
    """The HTML page of a document."""
    schemas = described["components"]["schemas"]
    sections = [
        _section(path, method.upper(), operation, schemas)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    return "\n".join(
        [
            "<!doctype html><html lang=en><meta charset=utf-8>",
            '<meta name="viewport" content="width=device-width">',
            f"<title>Onefold API</title><style>{_STYLE}</style>",
            f"<h1>Onefold API <small>{escape(described['info']['version'])}</small></h1>",
            f"<p>{escape(described['info']['description'])}</p>",
            '<p>The same as <a href="openapi.json">OpenAPI 3.1</a>.</p>',
            *sections,
            "</html>",
        ]
    )


def _section(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    lines = [
        f'<section id="{escape(operation["operationId"])}">',
        f"<h2><span class=method>{method}</span> <code>{escape(path)}</code></h2>",
        f"<p>{escape(operation['summary'])}</p>",
        f"<p>{escape(operation['description'])}</p>",
        "<table>",
    ]
    for given in operation["parameters"]:
        kind = f"{given['in']}, {_kind(given['schema'])}"
        lines.append(_row(given["name"], kind, given["description"]))
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        schema = schemas[content["schema"]["$ref"].rpartition("/")[2]]
        for name, given in schema["properties"].items():
            required = ", required" if name in schema.get("required", ()) else ""
            lines.append(_row(name, f"body, {_kind(given)}{required}", ""))
        curl = _curl(path, method, content["examples"]["usual"]["value"])
        lines.append(f"</table><pre>{escape(curl)}</pre>")
    else:
        lines.append("</table>")
    lines.append(f"<p>Responses: {', '.join(operation['responses'])}</p></section>")
    return "\n".join(lines)


def _curl(path: str, method: str, body: Any) -> str:
    text = json.dumps(body).replace("'", "'\\''")
    return (
        f"curl -X {method} http://127.0.0.1:7890{path} \\\n"
        '  -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" \\\n'
        f"  -d '{text}'"
    )


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(str(one) for one in schema["enum"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    return str(schema.get("type", "any"))


def _row(name: str, kind: str, text: str) -> str:
    cells = f"<td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{escape(text)}</td>"
    return f"<tr>{cells}</tr>"
