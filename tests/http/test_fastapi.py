"""What only FastAPI has: dependencies, models, routers, plain functions in threads."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

import fastapi
import pytest
from pydantic import BaseModel
from sqlalchemy import text

from onefold import ConflictingOptions, InvalidInput, Onefold, UsageError
from onefold.web.fastapi import Idempotency, Once
from tests.fixtures.colours import Store
from tests.fixtures.connections import Effects
from tests.fixtures.sqlalchemy_connections import async_engine_of
from tests.http.apps import anybody, bare_fastapi, keyed_app
from tests.http.apps_talk import Talk, part, visited
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
