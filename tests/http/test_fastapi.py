"""What only FastAPI has; and decorators that are written wrongly: what to write instead."""

from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any

import fastapi
import flask
import pytest
from pydantic import BaseModel
from sqlalchemy import text

from onefold import ConflictingOptions, InvalidInput, Onefold, UsageError
from onefold.web.fastapi import Idempotency, Once
from onefold.web.flask import Idempotency as FlaskIdempotency
from onefold.web.starlette import Idempotency as StarletteIdempotency
from tests.fixtures.colours import Store
from tests.fixtures.connections import Effects
from tests.fixtures.sqlalchemy_connections import async_engine_of
from tests.http.apps import anybody, bare_fastapi, keyed_app
from tests.http.apps_talk import Talk, lived, part, visited
from tests.http.scenario_modes import OURS_POSTGRES, OURS_SQLITE

SETTLED = 1
BODY = b'{"amount": 3}'
BOTH = pytest.mark.parametrize("mode", [OURS_SQLITE, OURS_POSTGRES], ids=str)


class Payment(BaseModel):
    amount: int


class Receipt(BaseModel):
    amount: int
    by: str = "alice"


async def test_but_nothing_that_it_would_have_to_await(onefold: Onefold, store: Store) -> None:
    _, idempotency = bare_fastapi(onefold)
    engine = async_engine_of(store, "aiosqlite")

    with pytest.raises(ConflictingOptions, match="the handler is a plain function"):

        @idempotency(principal=anybody, transaction=engine)
        def pay(once: Once) -> None: ...

    await engine.dispose()


async def test_what_transactions_begin_on_may_be_found_when_a_request_comes(
    onefold: Onefold, store: Store, effects: Effects
) -> None:
    engines: list[Any] = []

    async def pay(once: Once) -> None:
        await once.connection.execute(text(effects.insert(1)))

    app = keyed_app(onefold, pay, transaction=lambda: engines[0])
    engines.append(async_engine_of(store, "aiosqlite"))
    await visited(app, BODY, BODY)
    await engines[0].dispose()

    assert effects.numbers == [1]


async def test_dependencies_run_before_the_claim_and_their_ends_after_the_answer(
    onefold: Onefold, effects: Effects
) -> None:
    seen: list[Any] = []

    async def resource() -> AsyncGenerator[str]:
        seen.append(effects.claims)
        yield "resource"
        seen.append(effects.claims)

    async def pay(found: Annotated[str, fastapi.Depends(resource)]) -> str:
        return found

    app = keyed_app(onefold, pay, transaction=onefold)
    await Talk(app, part()).run()

    assert seen == [[], [("k", SETTLED)]]


@pytest.mark.parametrize("as_depends", [True, False])
async def test_a_principal_may_have_dependencies_of_its_own(
    onefold: Onefold, *, as_depends: bool
) -> None:
    def token(authorization: Annotated[str, fastapi.Header()]) -> str:
        return authorization

    def user(found: Annotated[str, fastapi.Depends(token)]) -> str:
        return found

    async def pay(once: Once) -> str:
        assert once.claim is not None
        return once.claim.key.scope

    app = keyed_app(
        onefold, pay, principal=fastapi.Depends(user) if as_depends else user, takeover="refuse"
    )
    talks = await visited(app, BODY, BODY)

    assert talks[0].body == talks[1].body == b'"Bearer alice:first-token"'


async def test_keys_are_not_kept_where_another_one_keeps_them(
    onefold: Onefold, effects: Effects
) -> None:
    app, _ = bare_fastapi(onefold)

    @app.post("/pay")
    @Idempotency(onefold)(principal=anybody, takeover="refuse")
    async def pay() -> None: ...

    with pytest.raises(UsageError, match="from another Idempotency"):
        await Talk(app, part(BODY)).run()

    assert effects.claims == []
    with pytest.raises(UsageError, match="has an Idempotency already"):
        Idempotency(onefold).install(app)
    with pytest.raises(InvalidInput, match="endpoint must be a function"):
        Idempotency(onefold)(principal=anybody, takeover="refuse")(Payment)


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
