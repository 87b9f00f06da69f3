"""The OpenAPI document says what the server does, and the server does what it says."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans
from schemathesis import GenerationMode
from starlette.applications import Starlette
from starlette.routing import Mount

from onefold import Job, Onefold
from onefold.model.ids import new_id
from onefold.model.outcome import OVERLOADED_STATUSES
from onefold.push.deliver import body_of, headers_of
from onefold.server import ServerSettings, create_app
from onefold.server.app import ROUTES
from onefold.server.openapi import document, problems_of
from onefold.server.problems import KINDS
from onefold.server.routing import Route
from onefold.web.webhooks.signing import Signer
from tests.docs.pages import DOCS
from tests.fixtures.proof import repetitions
from tests.fixtures.rows import job_row

SLOW = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
DOCUMENT = document(ROUTES, version="1")
EXAMPLES = repetitions(6, soak=2_000)
ROWS = re.compile(r"^\| (GET|PUT|POST|DELETE) \| `([^`]+)` \| ([-\w]+) \| (.+) \|$", re.MULTILINE)


def test_the_reference_lists_every_route_and_problem_and_no_other() -> None:
    page = (DOCS / "reference/http-api.md").read_text()

    rows = [(method, path, scope) for method, path, scope, _ in ROWS.findall(page)]

    paths = ("/healthz", "/readyz", "/v1/openapi.json", "/v1/docs", "/v1/docs/{file}")
    own = [("GET", path, "-") for path in paths]
    own.append(("GET", "/metrics", "admin"))
    assert rows == [
        *((route.method, route.path, route.scope or "-") for route in ROUTES),
        *own,
    ]
    problems = re.findall(r"^\| `(\w+)` \| (\d{3}) \| (.+?) \| (?!TODO)", page, re.MULTILINE)
    assert problems == [(kind.code, str(kind.status), kind.title) for kind in KINDS]


def test_every_component_is_used() -> None:
    text, schemas = json.dumps(DOCUMENT), DOCUMENT["components"]["schemas"]

    assert not [name for name in schemas if f'"#/components/schemas/{name}"' not in text]


def operations() -> list[dict[str, Any]]:
    """Those that the server answers, and the push."""
    found = (*DOCUMENT["paths"].values(), *DOCUMENT["webhooks"].values())
    return [operation for methods in found for operation in methods.values()]


def test_a_mounted_server_says_where_it_is_mounted(tmp_path: Path) -> None:
    with Onefold(f"sqlite:///{tmp_path}/onefold.db") as onefold:
        onefold.migrate()
        app = create_app(onefold, ServerSettings(anonymous=True, push=False, access_log=False))
        mounted = Starlette(routes=[Mount("/jobs", app)])
        schema = schemathesis.openapi.from_asgi("/jobs/v1/openapi.json", mounted)

    assert [server["url"] for server in schema.raw_schema["servers"]] == ["/jobs"]


MOMENTS = re.compile(r"(At|Until|For|From|Before|Tick|timestamp|since|until|at)$")
SECONDS = {"idempotencyFor", "uniqueFor", "webhook-timestamp"}
"""Numbers, though they are named like moments."""


def test_every_moment_is_a_date_time() -> None:
    found: dict[str, Any] = {}
    for name, schema in DOCUMENT["components"]["schemas"].items():
        found |= {f"{name}.{field}": of for field, of in schema.get("properties", {}).items()}
    for operation in operations():
        named = {one["name"]: one["schema"] for one in operation["parameters"]}
        found |= {f"{operation['operationId']}?{field}": of for field, of in named.items()}

    moments = {
        name: schema
        for name, schema in found.items()
        if MOMENTS.search(field := re.split(r"[.?]", name)[-1]) and field not in SECONDS
    }

    assert len(moments) > 40
    assert not [
        name
        for name, schema in moments.items()
        if "date-time" not in {one.get("format") for one in schema.get("anyOf", [schema])}
    ]


def test_a_response_requires_what_is_always_written() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    queue, settings = schemas["Queue"], schemas["QueueSettings"]
    optional = set(queue["properties"]) - set(queue["required"])
    assert optional == {"headers", "signingSecret", "previousSecrets"}
    assert settings["required"] == []
    assert settings["properties"]["timeout"]["default"] == 15
    assert "result" not in schemas["SimpleqJob"]["required"], "missing if none is stored"
    exponential, fixed = settings["properties"]["backoff"]["anyOf"][0]["anyOf"]
    assert (exponential["required"], fixed["required"]) == ([], ["type", "base"])


def test_the_push_is_described_as_it_is_sent() -> None:
    push = DOCUMENT["webhooks"]["push"]["post"]
    job = Job.from_row(job_row(new_id(0), queue="payments", payload_text='{"n":1}'))
    body = body_of(job)
    signer = Signer("whsec_" + "c2VjcmV0" * 4)
    headers = headers_of(job, body, signer, now=datetime.now(UTC))

    schema = DOCUMENT["components"]["schemas"]["PushEnvelope"]
    content = push["requestBody"]["content"]["application/json"]
    assert content["schema"] == {"$ref": "#/components/schemas/PushEnvelope"}
    example = content["examples"]["usual"]["value"]
    assert list(schema["properties"]) == list(json.loads(body)) == list(example)
    assert set(schema["required"]) == set(schema["properties"])
    ours = {name for name in headers if name.lower().startswith(("webhook-", "onefold-", "x-"))}
    assert {one["name"] for one in push["parameters"] if one["in"] == "header"} == ours
    assert set(push["responses"]) == {"2XX", "410", *map(str, OVERLOADED_STATUSES), "default"}


class Described(NamedTuple):
    """A server, by its own words."""

    schema: Any
    known: Mapping[str, str]
    """What stands in paths, and is there."""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Described:
    """A server without a network, and its own description of itself."""
    path = tmp_path_factory.mktemp("schema") / "onefold.db"
    onefold = Onefold(f"sqlite:///{path}")
    onefold.migrate()
    onefold.queues.save("payments")
    job = onefold.enqueue("charge", queue="payments")
    app = create_app(onefold, ServerSettings(anonymous=True, push=False, access_log=False))
    schema = schemathesis.openapi.from_asgi("/v1/openapi.json", app)
    return Described(schema, {"name": "payments", "id": job.id})


CASES = [
    *((route, GenerationMode.POSITIVE) for route in ROUTES if not route.streams),
    # A route that takes nothing cannot be asked wrongly.
    *((route, GenerationMode.NEGATIVE) for route in ROUTES if route.body or route.query),
]


@pytest.mark.parametrize(
    ("route", "mode"), CASES, ids=[f"{route.name}-{mode.value}" for route, mode in CASES]
)
def test_what_is_asked_at_random_is_answered_as_the_document_says(
    described: Described, route: Route, mode: GenerationMode
) -> None:
    """No 5xx, no status, type or body that the document does not have."""
    operation, known = described.schema[route.path][route.method], described.known

    @given(case=operation.as_strategy(generation_mode=mode), is_known=booleans())
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=SLOW)
    def ask(*, case: Any, is_known: bool) -> None:
        if is_known:
            # What is there is asked for, too, and not only what nobody has made.
            case.path_parameters.update(
                {name: known[name] for name in case.path_parameters if name in known}
            )
        response = case.call_and_validate(headers={"Host": "localhost"})
        if response.headers["content-type"][0] == "application/problem+json":
            codes = [kind.code for kind in problems_of(route)[response.status_code]]
            assert response.json()["code"] in codes

    ask()
