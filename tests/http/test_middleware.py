"""Other middleware beside ours, outside and inside of it."""

from typing import Any

import fastapi
import pytest

from onefold import Onefold
from onefold.web.fastapi import Idempotency, Once
from tests.fixtures.connections import Effects
from tests.http.apps import anybody
from tests.http.apps_talk import visited


def beside(onefold: Onefold, effects: Effects, *, inside: bool, fails: bool) -> fastapi.FastAPI:
    """An application with a function as middleware (Starlette's BaseHTTPMiddleware)."""
    app, idempotency = fastapi.FastAPI(), Idempotency(onefold)
    if not inside:
        idempotency.install(app)

    @app.middleware("http")
    async def timed(request: fastapi.Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["X-Timed"] = "true"
        return response

    if inside:
        idempotency.install(app)

    @app.post("/pay", status_code=201)
    @idempotency(principal=anybody, transaction=onefold)
    async def pay(body: dict[str, int], once: Once) -> dict[str, int]:
        await once.connection.execute(effects.insert(body["amount"]))
        if fails:
            raise ValueError("after it was written")
        return body

    return app


@pytest.mark.parametrize("inside", [True, False])
async def test_h084_h137_a_function_as_middleware_may_be_inside_or_outside(
    onefold: Onefold, effects: Effects, *, inside: bool
) -> None:
    with pytest.raises(ValueError, match="after it was written"):
        await visited(beside(onefold, effects, inside=inside, fails=True), b'{"amount": 3}')
    assert (effects.numbers, effects.claims) == ([], [])
    app = beside(onefold, effects, inside=inside, fails=False)
    talks = await visited(app, b'{"amount": 3}', b'{"amount": 3}')

    assert [(talk.status, talk.body) for talk in talks] == [(201, b'{"amount":3}')] * 2
    assert [talk.headers["x-timed"] for talk in talks] == ["true", "true"]
    assert talks[1].headers["idempotent-replayed"] == "true"
    assert effects.numbers == [3]
