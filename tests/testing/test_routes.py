"""Routes of ASGI and WSGI applications, and webhook receivers, on both databases."""

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
from onefold.web import flask as in_flask
from onefold.web import starlette as in_starlette
from onefold.web.webhooks import Received, StandardWebhooks, Webhook, sign
from tests.testing.zoo import Shop

PAY = "insert into payment (order_id, amount) values (7, 5)"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LATE = "Delivered again after the work that followed it"


def _request(key: str = "k-1") -> RouteRequest:
    return RouteRequest.json("POST", "/payments", {"order": 7}, idempotency_key=key)


def _scenarios(caught: pytest.ExceptionInfo[NotIdempotent]) -> set[str]:
    return {each.scenario.split(",")[0] for each in caught.value.findings}


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


def _flask(shop: Shop) -> flask.Flask:
    app = flask.Flask("shop")
    keys = in_flask.Idempotency(shop.onefold)
    keys.init_app(app)

    @app.post("/payments")
    @keys(principal=lambda: "ann", transaction=shop.onefold)
    def pay(once: in_flask.Once) -> Any:
        once.connection.execute(PAY)
        once.within().enqueue("mail", {"order": 7})
        return {"paid": 7}, 201

    return app


def _unprotected_starlette(shop: Shop) -> Starlette:
    def pay(request: StarletteRequest) -> JSONResponse:
        with shop.connect() as tx:
            tx.execute(PAY)
        return JSONResponse({"paid": 7}, 201)

    return Starlette(routes=[Route("/payments", pay, methods=["POST"])])


def _unprotected_flask(shop: Shop) -> flask.Flask:
    app = flask.Flask("shop")

    @app.post("/payments")
    def pay() -> Any:
        with shop.connect() as tx:
            tx.execute(PAY)
        return {"paid": 7}, 201

    return app


@pytest.mark.parametrize("make", [_starlette, _flask])
def test_a_route_with_a_key_passes(shop: Shop, make: Any) -> None:
    coverage = assert_idempotent(
        make(shop), _request(), onefold=shop.onefold, followed_by=[_request("k-2")]
    )
    # The insert, the commit of Onefold.
    assert coverage.crash_points >= 2


@pytest.mark.parametrize("make", [_unprotected_starlette, _unprotected_flask])
def test_a_route_without_a_key_is_found(shop: Shop, make: Any) -> None:
    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(
            make(shop), _request(), onefold=shop.onefold, followed_by=[_request("k-2")]
        )
    assert _scenarios(caught) >= {"Delivered twice", "Killed here", LATE}
    killed = [each.point for each in caught.value.findings if each.scenario.startswith("Killed")]
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


def _delivery(number: str = "msg_1") -> RouteRequest:
    body = b'{"order": 7}'
    headers = dict(sign(SECRET, id=number, body=body, now=datetime.now(UTC)))
    return RouteRequest("POST", "/hooks", {**headers, "content-type": "application/json"}, body)


@pytest.mark.parametrize("interface", ["asgi", "wsgi"])
def test_a_webhook_receiver_passes(shop: Shop, interface: str) -> None:
    payments = Webhook(shop.onefold, StandardWebhooks(SECRET), name="payments")

    if interface == "wsgi":

        @payments.process
        def paid(event: Received) -> None:
            event.connection.execute(PAY)

    else:

        @payments.process
        async def apaid(event: Received) -> None:
            await event.connection.execute(PAY)

    coverage = assert_idempotent(
        getattr(payments, interface),
        _delivery(),
        onefold=shop.onefold,
        followed_by=[_delivery("msg_2")],
    )
    assert coverage.crash_points >= 2


def test_a_webhook_receiver_that_remembers_the_last_delivery_only_is_found(shop: Shop) -> None:
    """A late duplicate: another delivery came between it and the first one."""
    app = flask.Flask("shop")

    @app.post("/hooks")
    def paid() -> Any:
        number = flask.request.headers["webhook-id"]
        with shop.connect() as tx:
            last = tx.execute("select log from purchase where id = 7").fetchone()[0]
            if last != number:
                tx.execute(PAY)
                tx.execute(shop.sql("update purchase set log = ? where id = 7"), (number,))
        return ""

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(app, _delivery(), onefold=shop.onefold, followed_by=[_delivery("msg_2")])
    assert LATE in _scenarios(caught)
