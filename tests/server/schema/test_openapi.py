"""The OpenAPI document says what the server does, and the server does what it says."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans
from schemathesis import GenerationMode

from onefold import Onefold
from onefold.model.served_queue import QueueConfiguration
from onefold.server import ServerSettings, create_app
from onefold.server.openapi import document
from onefold.server.problems import KINDS
from onefold.server.route import Route
from onefold.server.table import ROUTES
from tests.docs.pages import DOCS
from tests.fixtures.soak import repetitions

SLOW = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
EXAMPLES = repetitions(6, soak=2_000)
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


def test_the_reference_lists_every_problem_and_no_other() -> None:
    page = (DOCS / "reference/http-api.md").read_text()

    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \| (.+?) \| (?!TODO)", page, re.MULTILINE)

    assert rows == [(kind.code, str(kind.status), kind.title) for kind in KINDS]


def test_operations_have_names_of_their_own_and_say_what_they_do() -> None:
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    assert not [route.summary for route in ROUTES if route.summary.endswith(".")]


def test_every_reference_in_the_document_leads_somewhere() -> None:
    described = document(ROUTES, version="1")

    names = set(re.findall(r'"\$ref": ?"#/components/schemas/([^"]+)"', json.dumps(described)))

    assert names
    assert names <= set(described["components"]["schemas"])


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
    onefold.save_served_queue("payments", QueueConfiguration())
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
        case.call_and_validate(headers={"Host": "localhost"})

    ask()
