"""FastAPI's usual `Depends(get_session)`: the claim is joined to the session that it gives."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any

import fastapi
import httpx
import pytest
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

from onefold import ConflictingOptions, DatabaseBusy, InvalidInput, Onefold, UsageError
from onefold.databases.handler_transaction import Given
from onefold.runtime import Begin, End
from onefold.web import KeyRules
from onefold.web.fastapi import Once, once_of
from tests.fixtures.colours import Store
from tests.fixtures.connections import Effects
from tests.fixtures.sqlalchemy_connections import async_engine_of, engine_of
from tests.http.apps import anybody, bare_fastapi, keyed_app
from tests.http.apps_talk import Talk, part, served, visited
from tests.http.scenario_modes import OURS_POSTGRES, OURS_SQLITE

SETTLED = 1
TOO_MUCH = 100
LEASE = timedelta(minutes=1)

BOTH = pytest.mark.parametrize("mode", [OURS_SQLITE, OURS_POSTGRES], ids=str)


class Payment(BaseModel):
    amount: int


def async_app(onefold: Onefold, store: Store, effects: Effects, *, begins: bool) -> fastapi.FastAPI:
    """Coroutine functions, a dependency that reads, and one that keeps the session."""
    driver = "asyncpg" if store.dialect == "postgres" else "aiosqlite"
    maker = async_sessionmaker(async_engine_of(store, driver, poolclass=NullPool))

    async def get_session() -> AsyncGenerator[AsyncSession]:
        async with maker.begin() if begins else maker() as session:
            yield session

    async def user(session: Annotated[AsyncSession, fastapi.Depends(get_session)]) -> str:
        return str((await session.execute(text("select 'alice'"))).scalar_one())

    class Payments:
        def __init__(self, session: Annotated[AsyncSession, fastapi.Depends(get_session)]) -> None:
            self.session = session

        async def add(self, amount: int) -> None:
            await self.session.execute(text(effects.insert(amount)))

    app, idempotency = bare_fastapi(onefold, transaction=fastapi.Depends(get_session))

    @app.post("/pay", status_code=201)
    @idempotency(principal=user)
    async def pay(
        payment: Payment,
        session: Annotated[AsyncSession, fastapi.Depends(get_session)],
        payments: Annotated[Payments, fastapi.Depends()],
    ) -> Payment:
        assert isinstance(session, AsyncSession)
        await payments.add(payment.amount)
        await onefold.within(session).aenqueue("receipt", {"amount": payment.amount})
        if payment.amount > TOO_MUCH:
            raise ValueError("after it was written")
        return payment

    return app


def plain_app(onefold: Onefold, store: Store, effects: Effects, *, begins: bool) -> fastapi.FastAPI:
    """The same in plain functions."""
    driver = "psycopg" if store.dialect == "postgres" else "pysqlite"
    maker = sessionmaker(engine_of(store, driver, poolclass=NullPool))

    def get_session() -> Generator[Session]:
        with maker.begin() if begins else maker() as session:
            yield session

    def user(session: Annotated[Session, fastapi.Depends(get_session)]) -> str:
        return str(session.execute(text("select 'alice'")).scalar_one())

    app, idempotency = bare_fastapi(onefold, transaction=fastapi.Depends(get_session))

    @app.post("/pay", status_code=201)
    @idempotency(principal=user)
    def pay(
        payment: Payment, session: Annotated[Session, fastapi.Depends(get_session)], once: Once
    ) -> Payment:
        assert isinstance(session, Session)
        assert once.connection is session
        session.execute(text(effects.insert(payment.amount)))
        onefold.within(session).enqueue("receipt", {"amount": payment.amount})
        if payment.amount > TOO_MUCH:
            raise ValueError("after it was written")
        return payment

    return app


@contextmanager
def client_of(app: fastapi.FastAPI) -> Generator[Callable[..., httpx.Response]]:
    """Posts to a real server."""
    with served(app) as url:

        def post(amount: object, key: str = "k") -> httpx.Response:
            headers = {"Idempotency-Key": key}
            return httpx.post(f"{url}/pay", json={"amount": amount}, headers=headers)

        yield post


@pytest.mark.parametrize(
    ("mode", "make", "begins"),
    [
        (OURS_SQLITE, plain_app, False),
        (OURS_POSTGRES, async_app, False),
        pytest.param(OURS_POSTGRES, plain_app, True, marks=pytest.mark.prove),
        pytest.param(OURS_SQLITE, async_app, True, marks=pytest.mark.prove),
    ],
)
def test_the_claim_is_joined_to_the_session_of_the_dependency(
    onefold: Onefold, store: Store, effects: Effects, make: Any, *, begins: bool
) -> None:
    with client_of(make(onefold, store, effects, begins=begins)) as post:
        wrong = post("ten")
        assert (wrong.status_code, effects.claims) == (422, [])
        replies = [post(3), post(3)]
        failed = [post(101, "f") for _ in range(2)]
        reused = post(4)

    assert [(reply.status_code, reply.content) for reply in replies] == [
        (201, b'{"amount":3}'),
        (201, b'{"amount":3}'),
    ]
    assert replies[1].headers["idempotent-replayed"] == "true"
    assert [reply.status_code for reply in failed] == [500, 500]
    assert reused.json()["code"] == "key_reused"
    assert (effects.numbers, effects.claims) == ([3], [("k", SETTLED)])
    assert [job.payload for job in onefold.deliveries.take(worker="w", lease=LEASE)] == [
        {"amount": 3}
    ]


@pytest.mark.parametrize("mode", [OURS_POSTGRES], ids=str)
async def test_what_a_dependency_has_written_is_not_lost_with_its_connection(
    onefold: Onefold, store: Store, effects: Effects
) -> None:
    engine = async_engine_of(store, "asyncpg")

    async def get_session() -> AsyncGenerator[AsyncSession]:
        async with AsyncSession(engine) as session:
            yield session

    async def audited(session: Annotated[AsyncSession, fastapi.Depends(get_session)]) -> None:
        await session.execute(text(effects.insert(1)))
        pid = (await session.execute(text("select pg_backend_pid()"))).scalar_one()
        async with engine.connect() as other:
            await other.execute(text(f"select pg_terminate_backend({pid}, 10000)"))

    app, idempotency = bare_fastapi(onefold, transaction=fastapi.Depends(get_session))

    @app.post("/pay", dependencies=[fastapi.Depends(audited)])
    @idempotency(principal=anybody)
    async def pay(session: Annotated[AsyncSession, fastapi.Depends(get_session)]) -> None:
        await session.execute(text(effects.insert(2)))

    (talk,) = await visited(app, b"")
    await engine.dispose()

    assert (talk.status, effects.numbers, effects.claims) == (503, [], [])


@BOTH
async def test_nor_where_the_request_waits_for_another_one(
    onefold: Onefold, store: Store, effects: Effects
) -> None:
    """Each look at a key that is taken ends with a rollback."""
    engine = async_engine_of(store, "asyncpg" if store.dialect == "postgres" else "aiosqlite")
    _, idempotency = bare_fastapi(onefold)

    async with AsyncSession(engine) as session:
        runtime, begin = idempotency.registry.runtime, Begin(Given(session))
        await session.execute(text(effects.insert(1)))
        transaction = await runtime.aperform(begin)
        await runtime.aperform(End(transaction, commit=False))
        with pytest.raises(DatabaseBusy):
            await runtime.aperform(begin)
    await engine.dispose()


@pytest.mark.parametrize("mode", [OURS_POSTGRES], ids=str)
async def test_an_application_can_be_tested_in_a_transaction_that_is_rolled_back(
    onefold: Onefold, store: Store, effects: Effects
) -> None:
    """As SQLAlchemy's documentation has it: no other connection sees what the sessions commit."""
    engine = async_engine_of(store, "asyncpg")

    async def get_session() -> None: ...

    app, idempotency = bare_fastapi(onefold)

    @app.post("/pay", status_code=204)
    @idempotency(principal=anybody, transaction=fastapi.Depends(get_session))
    async def pay(session: Annotated[AsyncSession, fastapi.Depends(get_session)]) -> None:
        await session.execute(text(effects.insert(1)))

    talks = [Talk(app, part()) for _ in range(2)]
    async with engine.connect() as connection, connection.begin() as outer:

        async def in_test() -> AsyncGenerator[AsyncSession]:
            nested: Any = {"join_transaction_mode": "create_savepoint"}
            async with AsyncSession(connection, **nested) as session:
                yield session

        app.dependency_overrides[get_session] = in_test
        for talk in talks:
            await talk.run()
        await outer.rollback()
    await engine.dispose()

    assert [talk.status for talk in talks] == [204, 204]
    assert talks[1].headers["idempotent-replayed"] == "true"
    assert (effects.numbers, effects.claims) == ([], [])


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_a_handler_that_ends_the_transaction_is_told_to_leave_it(
    onefold: Onefold, store: Store, ends: str
) -> None:
    engine = async_engine_of(store, "aiosqlite")

    async def get_session() -> AsyncGenerator[AsyncSession]:
        async with AsyncSession(engine) as session:
            yield session

    async def pay(session: Annotated[AsyncSession, fastapi.Depends(get_session)]) -> None:
        await getattr(session, ends)()

    app = keyed_app(onefold, pay, transaction=fastapi.Depends(get_session))
    with pytest.raises(UsageError, match=r"flush\(\) instead of commit"):
        await Talk(app, part()).run()
    await engine.dispose()


@pytest.mark.parametrize(
    ("options", "why"), [({"use_cache": False}, "use_cache"), ({"scope": "function"}, "scope")]
)
@pytest.mark.parametrize("place", ["transaction", "annotation", "default"])
def test_a_session_that_nobody_shares_is_refused(
    onefold: Onefold, options: Any, why: str, place: str
) -> None:
    own = fastapi.Depends(anybody, **options)
    shared = own if place == "transaction" else fastapi.Depends(anybody)

    async def annotated(session: Annotated[str, own]) -> None: ...

    async def by_default(session: str = own) -> None: ...

    _, idempotency = bare_fastapi(onefold)
    name = "transaction" if place == "transaction" else "session"
    with pytest.raises(ConflictingOptions, match=f"{name} must not be .* {why}"):
        idempotency(principal=anybody, transaction=shared)(
            by_default if place == "default" else annotated
        )


def test_a_dependency_that_is_not_said_to_be_one_is_refused(onefold: Onefold) -> None:
    async def get_session() -> AsyncGenerator[None]:
        yield

    _, idempotency = bare_fastapi(onefold)

    with pytest.raises(InvalidInput, match=r"must be Depends\(get_session\)"):

        @idempotency(principal=anybody, transaction=get_session)
        async def pay() -> None: ...


async def test_what_is_no_session_is_refused_with_its_type(onefold: Onefold) -> None:
    async def pay() -> None: ...

    app = keyed_app(onefold, pay, transaction=fastapi.Depends(anybody))
    with pytest.raises(UsageError, match="str"):
        await Talk(app, part()).run()


async def test_a_dependency_that_asks_for_the_attempt_is_told_when_that_begins(
    onefold: Onefold,
) -> None:
    def attempt(request: fastapi.Request) -> Once:
        return once_of(request)

    app, idempotency = bare_fastapi(onefold, key=KeyRules())

    @app.post("/pay")
    @idempotency(principal=anybody, takeover="refuse")
    async def pay(once: Annotated[Any, fastapi.Depends(attempt)]) -> None: ...

    with pytest.raises(UsageError, match="claimed when its endpoint is called"):
        await Talk(app, part()).run()
