"""The OpenAPI document says what the server does, and the server does what it says."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig

from onefold import Onefold
from onefold.server import ServerSettings, create_app
from onefold.server.openapi import document
from onefold.server.table import ROUTES
from tests.docs.pages import DOCS
from tests.fixtures.soak import repetitions

EXAMPLES = repetitions(15, soak=2_000)
ROWS = re.compile(r"^\| (GET|PUT|POST|DELETE) \| `([^`]+)` \| ([-\w]+) \| (.+) \|$", re.MULTILINE)


def test_the_reference_lists_every_route_and_no_other() -> None:
    page = (DOCS / "reference/http-api.md").read_text()

    rows = [(method, path, scope) for method, path, scope, _ in ROWS.findall(page)]

    own = [("GET", path, "-") for path in ("/healthz", "/readyz", "/v1/openapi.json", "/v1/docs")]
    own.append(("GET", "/metrics", "admin"))
    assert rows == [
        *((route.method, route.path, route.scope or "-") for route in ROUTES),
        *own,
    ]


def test_operations_have_names_of_their_own_and_say_what_they_do() -> None:
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    assert all(route.summary.endswith(".") or route.summary.endswith("?") for route in ROUTES)


def test_every_reference_in_the_document_leads_somewhere() -> None:
    described = document(ROUTES, version="1")

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for member in value.values():
                yield from walk(member)
        elif isinstance(value, list):
            for member in value:
                yield from walk(member)

    names = {reference.rpartition("/")[2] for reference in walk(described)}
    assert names <= set(described["components"]["schemas"])


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server without a network, and its own description of itself."""
    path = tmp_path_factory.mktemp("schema") / "onefold.db"
    onefold = Onefold(f"sqlite:///{path}")
    onefold.migrate()
    app = create_app(onefold, ServerSettings(anonymous=True, push=False, access_log=False))
    config = SchemathesisConfig()
    config.projects.default.generation.update(allow_x00=True)
    return schemathesis.openapi.from_asgi("/v1/openapi.json", app, config=config)


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
def test_what_is_asked_at_random_is_answered_as_the_document_says(case: Any) -> None:
    if case.operation.path == "/v1/events":
        return  # it does not end; tests/server/events looks at it
    case.call_and_validate(headers={"Host": "localhost"})
