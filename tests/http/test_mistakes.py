"""Decorators that are written wrongly: the error says what to write instead."""

from collections.abc import Callable
from typing import Annotated, Any

import fastapi
import flask
import pytest

from onefold import Onefold, UsageError
from onefold.web.fastapi import Idempotency, Once
from onefold.web.flask import Idempotency as FlaskIdempotency
from onefold.web.starlette import Idempotency as StarletteIdempotency
from tests.http.apps import anybody, bare_fastapi
from tests.http.apps_talk import Talk, lived, part, visited

PARENTHESES = r"Write @idempotency\(principal=…, transaction=…\)"


async def endpoint() -> str:
    return "paid"


@pytest.mark.parametrize("make", [Idempotency, StarletteIdempotency, FlaskIdempotency])
def test_a_decorator_without_parentheses(onefold: Onefold, make: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=PARENTHESES):
        make(onefold)(endpoint)


async def test_swapped_decorators_of_fastapi(onefold: Onefold) -> None:
    app, idempotency = bare_fastapi(onefold)

    @idempotency(principal=anybody, takeover="refuse")
    @app.post("/pay")
    async def pay() -> str:
        return "paid"

    (failed,) = await lived(app)

    assert failed["type"] == "lifespan.startup.failed"
    assert "/pay has the function" in failed["message"]
    assert "Write the route on top" in failed["message"]


async def test_swapped_decorators_of_a_router_in_a_server_without_lifespan(
    onefold: Onefold,
) -> None:
    app, idempotency = bare_fastapi(onefold)
    router = fastapi.APIRouter(prefix="/v1")

    @idempotency(principal=anybody, takeover="refuse")
    @router.post("/pay")
    async def pay() -> str:
        return "paid"

    app.include_router(router)

    with pytest.raises(UsageError, match="/v1/pay has the function"):
        await Talk(app, part(), path="/v1/pay").run()


async def test_a_function_may_have_a_route_with_its_policy_and_one_without(
    onefold: Onefold,
) -> None:
    app, idempotency = bare_fastapi(onefold)

    async def pay() -> str:
        return "paid"

    app.post("/plain")(pay)
    app.post("/pay")(idempotency(principal=anybody, takeover="refuse")(pay))
    (talk,) = await visited(app, b"")

    assert talk.status == 200


@pytest.mark.parametrize("is_dependency", [True, False])
def test_an_attempt_that_fastapi_would_read_from_the_request(*, is_dependency: bool) -> None:
    app = fastapi.FastAPI()

    async def pay(once: Once) -> None: ...

    async def depends(_: Annotated[Any, fastapi.Depends(pay)]) -> None: ...

    with pytest.raises(UsageError, match="is given by @idempotency"):
        app.post("/pay")(depends if is_dependency else pay)


def test_swapped_decorators_of_flask(onefold: Onefold) -> None:
    app = flask.Flask("shop")
    idempotency = FlaskIdempotency(onefold)
    idempotency.init_app(app)

    @idempotency(principal=anybody, takeover="refuse")
    @app.post("/pay")
    def pay() -> str:
        return "paid"

    with pytest.raises(UsageError, match="/pay has the function"):
        app.test_client().post("/pay", headers={"Idempotency-Key": "k"})
