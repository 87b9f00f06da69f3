"""The OpenAPI 3.1 document, made from the route table, its types and their docstrings.

The examples are requests that the tests send, and the responses that the server gave.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from importlib.resources import files
from inspect import getdoc
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.model.delivery import PushEnvelope
from onefold.model.json_text import is_array, is_object
from onefold.model.queue import CONFIDENTIAL
from onefold.model.retry import Exponential, Fixed
from onefold.model.wire import SECONDS, camel, schema_of
from onefold.push.deliver import ATTEMPT, FENCE, SIMPLEQ
from onefold.server.field_docs import described_structs, on_the_wire
from onefold.server.problems import (
    FORBIDDEN,
    INTERNAL,
    INVALID,
    KINDS,
    MALFORMED,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    RATE_LIMITED,
    TIMED_OUT,
    TOOK_TOO_LONG,
    UNAUTHENTICATED,
    UNSUPPORTED_MEDIA,
    problem_response,
)
from onefold.web import problems as web_problems
from onefold.web.problems import (
    CONFLICT_RETRY,
    IN_PROGRESS,
    INCOMPLETE,
    KEY_EXPIRED,
    KEY_INVALID,
    KEY_REUSED,
    LEASE_LOST,
    NOT_RECORDED,
    RESPONSE_NOT_KEPT,
    TOO_LARGE,
    UNAVAILABLE,
    Problem,
    make,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onefold.server.routing import Route
    from onefold.web.problems import ProblemKind


EXAMPLES: Final[Mapping[str, Any]] = msgspec.json.decode(
    files("onefold.server").joinpath("examples.json").read_bytes()
)
"""Requests and the real responses to them: `operations` by name, `fields` by the name of a member
that is in none of them, and `problems` by code."""


_CONFIDENTIAL: Final = frozenset(map(camel, CONFIDENTIAL))
_REF: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"{(\w+)(?::\w+)?}")
_ALWAYS: Final = (
    INVALID, UNAUTHENTICATED, FORBIDDEN, METHOD_NOT_ALLOWED, RATE_LIMITED, INTERNAL, UNAVAILABLE,
    TOOK_TOO_LONG,
)  # fmt: skip
_WITH_BODY: Final = (MALFORMED, INCOMPLETE, TIMED_OUT, TOO_LARGE, UNSUPPORTED_MEDIA)
_WITH_KEY: Final = (
    KEY_INVALID, KEY_EXPIRED, IN_PROGRESS, RESPONSE_NOT_KEPT, LEASE_LOST, KEY_REUSED, NOT_RECORDED,
    CONFLICT_RETRY,
)  # fmt: skip
_NAME: Final = {"type": "string", "minLength": 1}
_KEY: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "examples": ["0b6d1c5e-3f0e-4f5c-9a53-6a1f6d2a7c11"],
}

INTRODUCTION: Final = """\
Onefold stores each job once, however often it is published, and pushes it to your endpoint, signed.
Its toolkit (claims, locks, steps) does the same for handlers in any language.

- Times are ISO 8601 in UTC. Durations are seconds. An unknown member or parameter is rejected.
- Lists have `items` and `next`: pass `next` as `after` to get the next page.
- Errors are `application/problem+json` (RFC 9457). Programs read the `code`, people the `detail`.
- Every POST accepts the header `Idempotency-Key`: a request that is repeated runs once.
- A server with API keys needs `Authorization: Bearer of_…`: press **Authorize** to try a call here.
"""

TAGS: Final[Mapping[str, str]] = {
    "queues": "Queues, their endpoints, limits and signing secrets.",
    "publish": "Publish jobs, one or many. The same key makes one job.",
    "jobs": "Find jobs, cancel and delete them, and read their deliveries.",
    "deliveries": "What a receiver reports about its delivery: ack, nack, defer, heartbeat.",
    "steps": "Steps of a delivery: each runs once, also if the job runs again.",
    "dead letters": "Jobs that failed for good: list, replay and delete them.",
    "schedules": "Jobs by cron expressions.",
    "claims": "Keys that one caller at a time has, with the result of the first.",
    "locks": "Locks with a lease and a fence.",
    "keys": "Stored keys of every surface: find out who holds them, release and settle them.",
    "workers": "Workers that run, and statistics of the last day.",
    "events": "Events of jobs and keys, as a stream.",
    "push": "The requests that Onefold sends to the endpoint of a queue.",
}
"""The tags of the operations, with their descriptions."""
PATH_PARAMETERS: Final[Mapping[str, str]] = {
    "name": "The name, percent-encoded if need be.",
    "id": "The id, as an earlier response has it.",
    "surface": "The surface of the key: http, webhook, form, once, publish, lock, or your own.",
    "key": "The key, percent-encoded.",
}
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
    for route in sorted(routes, key=lambda route: list(TAGS).index(route.tag)):
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, refs)
    webhooks = {"push": {"post": _push(refs[PushEnvelope])}}
    _describe(components, kinds)
    _exemplify(components, [*paths.values(), *webhooks.values()])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Onefold API",
            "version": version,
            "description": INTRODUCTION,
            "contact": {"name": "The Onefold maintainers"},
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": servers(""),
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "paths": paths,
        "webhooks": webhooks,
        "components": {
            "schemas": components,
            "examples": PROBLEM_EXAMPLES,
            "securitySchemes": {
                "apiKey": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key: `onefold apikeys create --scope admin`.",
                }
            },
        },
        "security": [{"apiKey": []}, {}],
    }


def _describe(components: dict[str, Any], kinds: Iterable[Any]) -> None:
    """Add the docstrings of the fields to the members of the schemas."""
    # Backoff is a type that msgspec does not know, so its structs stand within the members.
    described = described_structs([*kinds, Exponential, Fixed])
    for name, schema in components.items():
        # The schema of a generic struct has its parameters in its name: `Enqueued_Any_`.
        texts = described.get(name) or described[name.partition("_")[0]]
        for member, about in schema.get("properties", {}).items():
            if member in texts:
                _add_text(about, texts[member])
            for each in _within(about):
                if each.get("title") in {"Exponential", "Fixed"}:
                    _describe_backoff(each, described[each["title"]])


def _within(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema, and its alternatives."""
    yield schema
    for each in schema.get("anyOf", ()):
        yield from _within(each)


def _describe_backoff(schema: dict[str, Any], texts: Mapping[str, str]) -> None:
    for member, about in schema["properties"].items():
        if member == "type":
            about["description"] = "Which kind of backoff it is."
            about["examples"] = about["enum"]
        else:
            _add_text(about, texts[member])
            about["examples"] = [EXAMPLES["fields"][member]]


def _add_text(schema: dict[str, Any], text: str) -> None:
    """The description of a member; that of its type, which is its unit, comes last."""
    units = {each["description"] for each in _within(schema) if "description" in each}
    units &= {SECONDS}
    schema["description"] = " ".join([text, *units])


def _exemplify(components: dict[str, Any], items: Iterable[dict[str, Any]]) -> None:
    """Add an example to each member of the schemas, from those of the requests and responses."""
    found: dict[tuple[str, str], Any] = {}
    for operation in (operation for methods in items for operation in methods.values()):
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in (each for body in bodies for each in body.get("content", {}).values()):
            for example in content["examples"].values():
                _collect(content["schema"], example.get("value"), components, found)
    problem = PROBLEM_EXAMPLES["invalid_input"]["value"]
    found |= {("Problem", member): value for member, value in problem.items()}
    _add_examples(components, found)


def _add_examples(components: dict[str, Any], found: Mapping[tuple[str, str], Any]) -> None:
    fields = EXAMPLES["fields"]
    for name, schema in components.items():
        for member, about in schema.get("properties", {}).items():
            if "$ref" in str(about):
                continue  # its members have examples
            given = fields.get(f"{name}.{member}", fields.get(member))
            value = found.get((name, member), given)
            if value is not None:
                about["examples"] = [None if about.get("type") == "null" else value]


def _collect(
    schema: dict[str, Any], value: Any, components: dict[str, Any], found: dict[Any, Any]
) -> None:
    if "$ref" in schema and is_object(value):
        name = schema["$ref"].rpartition("/")[2]
        for member, about in components[name].get("properties", {}).items():
            inner = value.get(member)
            if inner not in (None, [], {}, ""):
                found.setdefault((name, member), inner)
                _collect(about, inner, components, found)
    elif is_array(value):
        for each in _within(schema):
            for one in value if "items" in each else ():
                _collect(each["items"], one, components, found)
    else:
        for each in schema.get("anyOf", ()):
            _collect(each, value, components, found)


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
    members: dict[str, Any] = {
        "instance": {"type": "string", "description": "The path of the request."},
        "requestId": {
            "type": "string",
            "description": "The id of the request, as in the log of the server.",
        },
    }
    for name in ("type", "title", "status", "detail", "code"):
        members[name] = schema["properties"][name]
    about = "For SimpleQ's SDK: a sentence, or the errors by field."
    members["error"] = {"description": about}
    return {**schema, "properties": members, "required": list(members)}


def _operation(route: Route, refs: dict[Any, Any]) -> dict[str, Any]:
    example = EXAMPLES["operations"][route.name]
    needs = "" if route.scope is None else f"\n\nAn API key needs the scope `{route.scope}`."
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": f"{route.description}{needs}",
        "tags": [route.tag],
        "parameters": _parameters(route, example),
        "responses": _responses(route, refs, example),
    }
    if route.scope is None:
        operation["security"] = []
    if route.body is not None:
        required = not route.body_optional
        operation["requestBody"] = _body(route.body, refs, example["bodies"], required=required)
    return operation


def _body(
    kind: Any, refs: dict[Any, Any], examples: Mapping[str, Any], *, required: bool = True
) -> dict[str, Any]:
    content = {"schema": refs[kind], "examples": _named(examples)}
    return {
        "description": _about(kind),
        "required": required,
        "content": {"application/json": content},
    }


def _named(examples: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"summary": name, "value": value} for name, value in examples.items()}


def _about(kind: Any) -> str:
    """The first sentence about a struct."""
    return on_the_wire((getdoc(kind) or "").partition("\n\n")[0])


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
            _parameter(
                name,
                "header",
                {**_NAME, "examples": [EXAMPLES["headers"][name]]},
                about,
                required=name in (FENCE, ATTEMPT),
            )
            for name, about in PUSH_HEADERS.items()
        ],
        "requestBody": _body(
            PushEnvelope, {PushEnvelope: envelope}, EXAMPLES["operations"]["pushJob"]["bodies"]
        ),
        "responses": {status: {"description": about} for status, about in PUSH_ANSWERS.items()},
    }


def _parameters(route: Route, example: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = [
        _parameter(name, "path", _NAME, PATH_PARAMETERS[name], required=True)
        | {"example": example["path"][name]}
        for name in _PARAMETER.findall(route.path)
    ]
    if route.query is not None:
        _, components = msgspec.json.schema_components([route.query], ref_template=_REF)
        query = components[route.query.__name__]
        texts = described_structs([route.query])[route.query.__name__]
        for name, schema in query["properties"].items():
            # Within the schema: the page would fill the parameter itself in.
            value = example.get("query", {}).get(name, EXAMPLES["fields"][name])
            shown = {**schema, "examples": [value]}
            required = name in query.get("required", ())
            found.append(_parameter(name, "query", shown, texts[name], required=required))
    if route.method == "POST":
        about = "The same for every retry of one request; new for every new one."
        found.append(_parameter("Idempotency-Key", "header", _KEY, about))
    return found


def _parameter(
    name: str, place: str, schema: Any, about: str, *, required: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": required,
        "schema": schema,
        "description": about,
    }


def _responses(
    route: Route, refs: dict[Any, Any], example: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    responses: dict[str, dict[str, Any]] = {}
    for status, kind in route.answers.items():
        phrase = HTTPStatus(status).phrase
        if kind is None:
            responses[str(status)] = {"description": f"{phrase}: it is done."}
            continue
        is_text = isinstance(kind, str)
        content = {
            "schema": {"type": "string"} if is_text else refs[kind],
            "examples": _named({phrase: example["answers"][str(status)]}),
        }
        responses[str(status)] = {
            "description": f"{phrase}. {route.summary if is_text else _about(kind)}",
            "content": {kind if is_text else "application/json": content},
        }
    for status, kinds in sorted(problems_of(route).items()):
        if str(status) not in responses:
            responses[str(status)] = _problem_response(kinds, refs[Problem])
    return responses


def problems_of(route: Route) -> dict[int, list[ProblemKind]]:
    """The kinds of problems that a route may return, by status."""
    kinds = [*_ALWAYS, *route.problems]
    if route.body is not None or route.method == "POST":
        kinds += _WITH_BODY
    if route.method == "POST":
        kinds += _WITH_KEY if route.keyed == "claim" else (KEY_INVALID,)
    if "{" in route.path:
        kinds.append(NOT_FOUND)
    found: dict[int, list[ProblemKind]] = {}
    for kind in dict.fromkeys(kinds):
        found.setdefault(kind.status, []).append(kind)
    return found


def _problem_response(kinds: Sequence[ProblemKind], schema: Any) -> dict[str, Any]:
    examples = {kind.code: {"$ref": f"#/components/examples/{kind.code}"} for kind in kinds}
    about = "; ".join(f"`{kind.code}`: {kind.title.lower()}" for kind in kinds)
    content = {"schema": schema, "examples": examples}
    return {"description": f"{about}.", "content": {"application/problem+json": content}}


def _problem_examples() -> dict[str, Any]:
    """An example of each problem, by its code."""
    examples: dict[str, Any] = {}
    for kind in (*KINDS, *web_problems.KINDS):
        if detail := kind.detail or EXAMPLES["problems"].get(kind.code):
            response = problem_response(
                make(kind, detail),
                instance="/v1/queues/payments/jobs",
                request_id=EXAMPLES["fields"]["requestId"],
            )
            value = msgspec.json.decode(response.body)
            examples[kind.code] = {"summary": kind.title, "value": value}
    return examples


PROBLEM_EXAMPLES: Final = _problem_examples()
