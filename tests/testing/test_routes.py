"""Routes of ASGI and WSGI applications, on both databases."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import flask
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from onefold.testing import NotIdempotent, RouteRequest, assert_idempotent
from onefold.web import starlette as in_starlette
from tests.testing.zoo import Shop

PAY = "insert into payment (order_id, amount) values (7, 5)"
KILLED = "Killed here"
LATE = "Delivered again after the work that followed it"


def _request(key: str = "k-1") -> RouteRequest:
    return RouteRequest.json("POST", "/payments", {"order": 7}, idempotency_key=key)


def test_headers_of_a_request_are_a_dictionary_or_names() -> None:
    headers = {"Authorization": "Bearer x", "Content-Type": "application/problem+json"}
    request = RouteRequest.json("POST", "/x", 1, headers=headers, idempotency_key="k")
    assert request.headers == {
        "authorization": "Bearer x",
        "content-type": "application/problem+json",
        "idempotency-key": "k",
    }


def _starlette(shop: Shop) -> Starlette:
    keys = in_starlette.Idempotency(shop.onefold)

    @keys(principal=lambda _: "ann", transaction=shop.onefold)
    async def pay(request: StarletteRequest, once: in_starlette.Once) -> JSONResponse:
        await once.connection.execute(PAY)
        await once.within().aenqueue("mail", {"order": 7})
        return JSONResponse({"paid": 7}, 201)

    app = Starlette(routes=[Route("/payments", pay, methods=["POST"])])
    keys.install(app)
    return app


def test_a_route_with_a_key_passes(shop: Shop) -> None:
    coverage = assert_idempotent(
        _starlette(shop), _request(), onefold=shop.onefold, followed_by=[_request("k-2")]
    )
    # The insert, the commit of Onefold.
    assert coverage.crash_points >= 2


def test_a_route_without_a_key_is_found(shop: Shop) -> None:
    app = flask.Flask("shop")

    @app.post("/payments")
    def pay() -> Any:
        with shop.connect() as tx:
            tx.execute(PAY)
        return {"paid": 7}, 201

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(app, _request(), onefold=shop.onefold, followed_by=[_request("k-2")])
    found = caught.value.findings
    assert {each.scenario.split(",")[0] for each in found} >= {"Delivered twice", KILLED, LATE}
    killed = [each.point for each in found if each.scenario.startswith(KILLED)]
    assert {each.line.file for each in killed if each is not None} == {__file__}


def _stores(shop: Shop, answer: Callable[[int], Any]) -> flask.Flask:
    """An application that answers by the number of rows that a request has stored."""
    app = flask.Flask("shop")

    @app.post("/payments")
    def pay() -> Any:
        with shop.connect() as tx:
            return answer(shop.keep_receipt(tx, 7).rowcount)

    return app


def _by_status(stored: int) -> Any:
    return "", 201 if stored else 422


def _by_body(stored: int) -> Any:
    return {"stored": stored}


@pytest.mark.parametrize(
    ("answer", "difference"),
    [
        (_by_status, "~ response: status 422 instead of 201"),
        (_by_body, '~ response: body b\'{"stored":0}'),
    ],
)
def test_a_repeated_request_must_get_the_same_response(
    shop: Shop, answer: Any, difference: str
) -> None:
    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(_stores(shop, answer), _request(), onefold=shop.onefold)
    first = caught.value.findings[0]
    assert first.differences[0].startswith(difference)
    assert first.advice.startswith("answer a repeated request with the stored response")


def _created(stored: int) -> Any:
    return {"id": 7}, 201 if stored else 200


def _at(_: int) -> Any:
    return {"at": datetime.now(UTC).isoformat()}


@pytest.mark.parametrize("answer", [_created, _at])
def test_the_response_to_a_repeated_request_may_be_200_and_have_another_time(
    shop: Shop, answer: Any
) -> None:
    assert_idempotent(_stores(shop, answer), _request(), onefold=shop.onefold)
