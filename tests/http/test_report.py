"""What a start says and refuses, and what the OpenAPI document says: each route's guarantee."""

import logging
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter

from onefold import ConflictingOptions, InvalidInput, Onefold
from onefold.web.idempotency.key import KeyRules
from onefold.web.idempotency.keyed_routes import RouteRegistry
from tests.fixtures.patience import HANG
from tests.http.apps import anybody, asgi_app, bare_fastapi, fastapi_app, starlette_app
from tests.http.apps_talk import lived, visited
from tests.http.scenario_site import OpenSite

JOINED = {"transaction": "Onefold"}
"""Of a route; the test gives it the object."""


async def test_a_start_reports_every_route_with_its_guarantee(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    app, idempotency = bare_fastapi(onefold)
    options: dict[str, Any] = {
        "/joined": {"transaction": onefold},
        "/rerun": {"takeover": "rerun", "required": False},
        "/refuse": {"takeover": "refuse", "retention": timedelta(hours=48)},
    }
    for path, said in options.items():
        decorated = idempotency(principal=anybody, **said)(_paid())
        app.add_api_route(path, decorated, methods=["POST"])

    with caplog.at_level(logging.INFO, "onefold.web"):
        await lived(app)

    assert idempotency.report() == [
        "POST /joined: exactly once (joined; key required, kept 24 h)",
        "POST /rerun: at least once (leased, takeover rerun; key optional, kept 24 h)",
        "POST /refuse: at most once (leased, takeover refuse; key required, kept 48 h)",
    ]
    for line in idempotency.report():
        assert line in caplog.text


def _paid() -> Any:
    async def paid() -> str:
        return "paid"

    return paid


@pytest.mark.parametrize("make", [asgi_app, starlette_app, fastapi_app])
async def test_an_endpoint_of_several_routes_is_reported_with_each(
    open_site: OpenSite, caplog: pytest.LogCaptureFixture, make: Any
) -> None:
    site = await open_site()

    async def living(_scope: Any, _receive: Any, _send: Any) -> None: ...

    app = make(site.shop)
    if make is asgi_app:
        app.app = living
    with caplog.at_level(logging.INFO, "onefold.web"):
        await lived(app)

    for name in ("POST /pay", "PATCH /pay", "DELETE /orders/{number}", "POST /other"):
        assert name in caplog.text


async def test_a_policy_on_a_read_does_not_start(onefold: Onefold) -> None:
    app, idempotency = bare_fastapi(onefold)
    decorated = idempotency(principal=anybody, takeover="refuse")(_paid())
    app.add_api_route("/pay", decorated, methods=["GET"])

    (said,) = await lived(app)

    assert said["type"] == "lifespan.startup.failed"
    assert "is not for GET: /pay has no effect" in said["message"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "takeover is missing for a route without transaction="),
        ({"takeover": "again"}, "must be rerun, resume or refuse"),
        ({"takeover": "rerun", "verify": print}, "verify is for takeover"),
        ({"takeover": "rerun", "guarantee": "exactly once"}, "these options give 'at least once'"),
        ({"takeover": "refuse", "on_4xx": "unknown"}, "on_4xx must be one of"),
        ({"takeover": "refuse", "expired": "refuse"}, "only UUIDv7 contains its time"),
        ({"takeover": "refuse", "fingerprint": "jsn"}, "must be raw, json, form"),
        ({"takeover": "refuse", "colour": "red"}, "colour"),
        ({**JOINED, "takeover": "rerun"}, "a transaction cannot end half done"),
        ({**JOINED, "stream": "forward"}, "what is not committed must not be sent"),
        ({**JOINED, "fail_open": True}, "without its transaction this handler cannot run"),
        ({**JOINED, "on_error": "unknown"}, "a joined one is undone"),
    ],
)
def test_settings_that_make_no_sense_are_refused_where_they_are_said(
    onefold: Onefold, options: Any, message: str
) -> None:
    if "transaction" in options:
        options = {**options, "transaction": onefold}

    with pytest.raises((ConflictingOptions, InvalidInput, TypeError), match=message):
        RouteRegistry(onefold).route({**options, "principal": anybody}, name="POST /pay")


async def test_keys_of_routes_without_a_policy_may_be_ignored_and_that_is_said(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    app, _ = bare_fastapi(onefold, unconfigured="ignore")
    app.add_api_route("/plain", anybody, methods=["POST"])

    with caplog.at_level(logging.WARNING):
        (talk,) = await visited(app, b"", path="/plain")

    assert talk.status == 200
    assert "are ignored" in caplog.text


SHOP = """
import logging

from fastapi import FastAPI

from onefold import Onefold
from onefold.web.fastapi import Idempotency

if __name__ == "configured":
    logging.basicConfig(level=logging.INFO)
onefold = Onefold("sqlite:///shop.db")
onefold.migrate()
app, idempotency = FastAPI(), Idempotency(onefold)
idempotency.install(app)


@app.post("/pay")
@idempotency(principal=lambda: "alice", takeover="refuse")
async def pay() -> str:
    return "paid"


@app.on_event("startup")
def stop() -> None:
    raise SystemExit("the start is over")
"""


@pytest.mark.prove
@pytest.mark.parametrize("configured", [True, False], ids=["configured", "plain"])
def test_the_report_is_shown_once_under_plain_uvicorn(tmp_path: Path, *, configured: bool) -> None:
    name = "configured" if configured else "plain"
    (tmp_path / f"{name}.py").write_text(SHOP)
    command = [sys.executable, "-m", "uvicorn", f"{name}:app", "--port", "0"]

    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG, check=False
    )

    lines = [line for line in done.stderr.splitlines() if "POST /pay: at most once" in line]
    assert len(lines) == 1, done.stderr


def documented(onefold: Onefold, **options: Any) -> dict[str, Any]:
    """The document of an application with one route with a policy and one without."""
    app, idempotency = bare_fastapi(onefold)
    router = APIRouter(prefix="/v1")

    @router.post("/pay", status_code=201)
    @idempotency(principal=anybody, **options)
    async def pay() -> str:
        return "paid"

    router.add_api_route("/plain", anybody, methods=["POST"])
    app.include_router(router)
    document: dict[str, Any] = app.openapi()
    assert app.openapi() is document
    return document


def test_h189_a_key_is_a_parameter_with_its_rules(onefold: Onefold) -> None:
    rules = KeyRules(headers=("Request-Token",), format="uuid", min_length=36, max_length=36)
    document = documented(onefold, takeover="refuse", key=rules, retention=timedelta(hours=48))

    (parameter,) = document["paths"]["/v1/pay"]["post"]["parameters"]

    assert (parameter["name"], parameter["in"], parameter["required"]) == (
        "Request-Token",
        "header",
        True,
    )
    assert parameter["schema"] == {
        "type": "string",
        "minLength": 36,
        "maxLength": 36,
        "format": "uuid",
    }
    assert "within 48 hours" in parameter["description"]
    plain = document["paths"]["/v1/plain"]["post"]
    assert not {"parameters", "x-idempotency"} & set(plain)
    assert "onefold_" not in str(document), "what we ask of FastAPI is not shown"


def test_h189_guarantee_refusals_and_the_marker_are_published(onefold: Onefold) -> None:
    operation = documented(onefold, transaction=onefold, required=False)["paths"]["/v1/pay"]["post"]
    responses = operation["responses"]

    assert operation["x-idempotency"] == {
        "guarantee": "exactly once",
        "retention": 24 * 60 * 60,
        "keyFormat": "text",
        "keyMaxLength": 255,
        "required": False,
    }
    assert "Idempotent-Replayed" in responses["201"]["headers"]
    for status, code in (("400", "key_missing"), ("409", "in_progress"), ("422", "key_reused")):
        assert code in responses[status]["content"]["application/problem+json"]["examples"]
    assert "Retry-After" in responses["409"]["headers"]


def test_what_the_application_says_of_a_status_itself_stays(onefold: Onefold) -> None:
    app, idempotency = bare_fastapi(onefold)

    @app.post("/pay/{name:path}", responses={409: {"description": "Sold out."}})
    @idempotency(principal=anybody, takeover="refuse")
    async def pay(name: str, number: int) -> int:
        return number

    responses = app.openapi()["paths"]["/pay/{name}"]["post"]["responses"]

    assert responses["409"]["description"] == "Sold out."
    assert "application/json" in responses["422"]["content"]
    assert "application/problem+json" in responses["422"]["content"]
