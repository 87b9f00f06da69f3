"""What only Starlette has: endpoints that are classes, plain functions, mounts."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Host, Mount, Route

from onefold import InvalidInput, Onefold, UsageError
from onefold.web.starlette import Idempotency, Once, once_of
from tests.fixtures.connections import Effects
from tests.http.apps_talk import Talk, part, visited

SETTLED = 1


async def caller(_request: Request) -> str:
    return "alice"


def installed(onefold: Onefold, endpoint: Any, idempotency: Idempotency) -> Starlette:
    app = Starlette(routes=[Route("/pay", endpoint, methods=["POST"])])
    idempotency.install(app)
    return app


async def test_an_endpoint_may_be_a_method_of_a_class(onefold: Onefold) -> None:
    idempotency, runs = Idempotency(onefold), [0]

    class Pay(HTTPEndpoint):
        @idempotency(principal=caller, transaction=onefold)
        async def post(self, _request: Request, once: Once) -> Response:
            runs[0] += 1
            return PlainTextResponse(str(once.request_key))

    app = Starlette(routes=[Route("/pay", Pay)])
    idempotency.install(app)
    talks = await visited(app)

    assert [talk.body for talk in talks] == [b"k", b"k"]
    assert runs == [1]
    assert idempotency.report() == ["POST /pay: exactly once (joined; key required, kept 24 h)"]


async def test_an_endpoint_may_be_a_plain_function_and_asks_for_its_attempt(
    onefold: Onefold, effects: Effects
) -> None:
    idempotency = Idempotency(onefold)

    @idempotency(principal=caller, takeover="refuse")
    def pay(request: Request) -> Response:
        with once_of(request).transaction() as connection:
            connection.execute(effects.insert(1))
        return PlainTextResponse("paid")

    talks = await visited(installed(onefold, pay, idempotency))

    assert [talk.body for talk in talks] == [b"paid", b"paid"]
    assert effects.numbers == [1]


@pytest.mark.parametrize("host", [False, True], ids=["mount", "host"])
async def test_a_mounted_application_is_found_with_its_path(
    onefold: Onefold, *, host: bool
) -> None:
    idempotency = Idempotency(onefold)

    @idempotency(principal=caller, takeover="refuse", scope="route")
    async def pay(_request: Request) -> Response:
        return PlainTextResponse("paid")

    inner = Starlette(routes=[Route("/{order}/pay", pay, methods=["POST"])])
    orders = Mount("/orders", inner)
    app = Starlette(routes=[Host("shop.example", Starlette(routes=[orders])) if host else orders])
    idempotency.install(app)
    talks = await visited(app, path="/orders/7/pay", headers=[("host", "shop.example")])

    assert [talk.body for talk in talks] == [b"paid", b"paid"]
    assert talks[1].headers["idempotent-replayed"] == "true"
    assert idempotency.report()[0].startswith("POST /orders/{order}/pay: at most once")


async def test_h045_what_is_no_application_of_starlettes_has_no_policy(onefold: Onefold) -> None:
    async def other(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("other")(scope, receive, send)

    app = Starlette(routes=[Mount("/other", other)])
    Idempotency(onefold).install(app)
    (talk, _) = await visited(app, path="/other/pay")

    assert talk.status == 400
    assert b"not_configured" in talk.body


async def test_a_policy_without_the_middleware_is_told_so(onefold: Onefold) -> None:
    @Idempotency(onefold)(principal=caller, takeover="refuse")
    async def pay(_request: Request) -> Response:
        return PlainTextResponse("paid")

    app = Starlette(routes=[Route("/pay", pay, methods=["POST"])])

    with pytest.raises(UsageError, match=r"Call idempotency\.install\(app\)"):
        await Talk(app, part()).run()


async def test_an_endpoint_without_a_policy_has_no_attempt(onefold: Onefold) -> None:
    async def pay(request: Request) -> Response:
        once_of(request)
        return PlainTextResponse("paid")

    app = installed(onefold, pay, Idempotency(onefold))

    with pytest.raises(UsageError, match=r"decorate it with @idempotency"):
        await Talk(app, part(), key=None).run()


async def test_one_request_has_one_policy(onefold: Onefold, effects: Effects) -> None:
    idempotency = Idempotency(onefold)

    @idempotency(principal=caller, transaction=onefold)
    @idempotency(principal=caller, transaction=onefold)
    async def pay(_request: Request) -> Response:
        return PlainTextResponse("paid")

    with pytest.raises(UsageError, match="one route, one @idempotency"):
        await Talk(installed(onefold, pay, idempotency), part()).run()
    assert effects.claims == []


def test_a_class_is_no_endpoint_to_decorate(onefold: Onefold) -> None:
    class Pay(HTTPEndpoint):
        """Its methods are."""

    with pytest.raises(InvalidInput, match="or a method of an HTTPEndpoint"):
        Idempotency(onefold)(principal=caller, takeover="refuse")(Pay)


class Unversioned:
    """Middleware of an application: it removes the version from the path."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "").removeprefix("/v1")
        await self._app({**scope, "path": path}, receive, send)


class Shifted(Route):
    """A route that is matched without its version."""

    def matches(self, scope: Any) -> Any:
        return super().matches({**scope, "path": scope["path"].removeprefix("/v1")})


POST = ["POST"]
PLACES: dict[str, tuple[str, Callable[[Any], Starlette]]] = {
    "fixed": ("/pay", lambda pay: Starlette(routes=[Route("/pay", pay, methods=POST)])),
    "template": (
        "/7/pay",
        lambda pay: Starlette(routes=[Route("/{order}/pay", pay, methods=POST)]),
    ),
    "mount": (
        "/shop/pay",
        lambda pay: Starlette(routes=[Mount("/shop", routes=[Route("/pay", pay, methods=POST)])]),
    ),
    "middleware inside": (
        "/v1/pay",
        lambda pay: Starlette(
            routes=[Route("/pay", pay, methods=POST)], middleware=[Middleware(Unversioned)]
        ),
    ),
    "route of another class": (
        "/v1/pay",
        lambda pay: Starlette(routes=[Shifted("/pay", pay, methods=POST)]),
    ),
}
"""Where a request finds a route, and an application with it."""


@pytest.mark.parametrize(("path", "placed"), PLACES.values(), ids=PLACES)
async def test_h002_without_an_optional_key_the_transaction_is_ended_wherever_the_route_is(
    onefold: Onefold, effects: Effects, path: str, placed: Callable[[Any], Starlette]
) -> None:
    idempotency, runs = Idempotency(onefold), [0]

    @idempotency(principal=caller, transaction=onefold, required=False)
    async def pay(_request: Request, once: Once) -> Response:
        runs[0] += 1
        await once.connection.execute(effects.insert(runs[0]))
        return PlainTextResponse("paid", 500 if runs[0] == 2 else 200)

    app = placed(pay)
    idempotency.install(app)
    for _ in range(3):
        await Talk(app, part(), path=path, key=None).run()

    assert effects.numbers == [1, 3]


async def test_a_route_that_is_added_too_late_has_no_transaction(onefold: Onefold) -> None:
    idempotency, runs = Idempotency(onefold), [0]

    @idempotency(principal=caller, transaction=onefold, required=False)
    async def pay(_request: Request, once: Once) -> Response:
        runs[0] += 1
        return PlainTextResponse(repr(once.request_key))

    app = installed(onefold, pay, idempotency)
    await Talk(app, part(), key=None).run()
    app.router.routes.append(Route("/late", cast("Any", pay), methods=["POST"]))

    with pytest.raises(UsageError, match="after the start"):
        await Talk(app, part(), path="/late", key=None).run()
    assert runs == [1]
