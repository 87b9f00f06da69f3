"""Idempotency keys in an OpenAPI document: the header, the rejections, and the retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onefold.web import problems

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onefold.web.idempotency.policy import RoutePolicy

REFUSALS: Final = (
    (problems.KEY_MISSING, problems.KEY_INVALID),
    (problems.IN_PROGRESS, problems.OUTCOME_UNKNOWN),
    (problems.KEY_REUSED,),
)
PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"type": "string"},
    },
}
SCHEMA: Final = "OnefoldProblem"


def describe(
    document: dict[str, Any], path: str, methods: Iterable[str], policy: RoutePolicy
) -> None:
    """Add the key of a route to an OpenAPI document."""
    for method in methods:
        operation = document.get("paths", {}).get(path, {}).get(method.lower())
        if operation is not None:
            _describe(operation, policy)
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas[SCHEMA] = PROBLEM


def _describe(operation: dict[str, Any], policy: RoutePolicy) -> None:
    operation.setdefault("parameters", []).append(_parameter(policy))
    responses: dict[str, Any] = operation.setdefault("responses", {})
    for status, response in responses.items():
        if status.startswith(("2", "3")):
            response.setdefault("headers", {})[policy.marker] = {
                "description": "Whether this is the stored response of an earlier request.",
                "schema": {"type": "boolean"},
            }
    for kinds in REFUSALS:
        _add_refusal(responses, kinds)
    operation["x-idempotency"] = {
        "guarantee": policy.promises,
        "retention": int(policy.retention.total_seconds()),
        "keyFormat": policy.key.format or "text",
        "keyMaxLength": policy.key.max_length,
        "required": policy.required,
    }


def _parameter(policy: RoutePolicy) -> dict[str, Any]:
    rules = policy.key
    schema: dict[str, Any] = {
        "type": "string",
        "minLength": rules.min_length,
        "maxLength": rules.max_length,
    }
    if rules.format is not None:
        schema["format"] = rules.format
    hours = policy.retention.total_seconds() / 3600
    return {
        "name": rules.headers[0],
        "in": "header",
        "required": policy.required,
        "description": (
            "Names this request: new for every new request, the same for every retry of it. A retry"
            f" within {hours:g} hours receives the first response, and is not carried out again."
        ),
        "schema": schema,
    }


def _add_refusal(responses: dict[str, Any], kinds: tuple[problems.ProblemKind, ...]) -> None:
    """In addition to the description of the application."""
    response = responses.setdefault(str(kinds[0].status), {"description": kinds[0].title})
    content: dict[str, Any] = response.setdefault("content", {})
    content["application/problem+json"] = {
        "schema": {"$ref": f"#/components/schemas/{SCHEMA}"},
        "examples": {
            kind.code: {
                "summary": kind.title,
                "value": {"type": kind.type, "title": kind.title, "status": kind.status},
            }
            for kind in kinds
        },
    }
    if problems.IN_PROGRESS in kinds:
        response.setdefault("headers", {})["Retry-After"] = {
            "description": "Seconds to wait before the next retry.",
            "schema": {"type": "integer"},
        }
