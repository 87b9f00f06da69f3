"""What clients can read of keys: in the OpenAPI document (H189)."""

from datetime import timedelta
from typing import Any

from fastapi import APIRouter

from onefold import Onefold
from onefold.web.idempotency.key import KeyRules
from tests.http.apps import anybody, bare_fastapi


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
