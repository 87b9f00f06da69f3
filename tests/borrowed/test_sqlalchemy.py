"""What is SQLAlchemy's alone: autobegin, sessions, events, AUTOCOMMIT, what is no connection."""

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from onefold import NewJob, NoTransaction, WrongConnection
from tests.fixtures.colours import Dialect, Store
from tests.fixtures.connections import Effects
from tests.fixtures.sqlalchemy_connections import async_engine_of, engine_of

DRIVERS = {"postgres": "psycopg", "sqlite": "pysqlite"}
ASYNC_DRIVERS = {"postgres": "asyncpg", "sqlite": "aiosqlite"}

on_postgres = pytest.mark.parametrize("dialect", ["postgres"])
on_both = pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
on_every_driver = pytest.mark.parametrize(
    ("dialect", "driver"),
    [("postgres", "psycopg"), ("postgres", "psycopg2"), ("sqlite", "pysqlite")],
)
on_every_async_driver = pytest.mark.parametrize(
    ("dialect", "driver"),
    [("postgres", "psycopg"), ("postgres", "asyncpg"), ("sqlite", "aiosqlite")],
)


class Base(DeclarativeBase):
    """The caller's tables."""


class Invoice(Base):
    """A table of the caller's own."""

    __tablename__ = "invoice"

    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def engine(store: Store) -> Iterator[Engine]:
    engine = engine_of(store, DRIVERS[store.dialect])
    if store.dialect == "postgres":
        engine = engine.execution_options(schema_translate_map={None: store.schema})
    yield engine
    engine.dispose()


@pytest.fixture
def invoices(engine: Engine) -> None:
    Base.metadata.create_all(engine)


# --- sessions -------------------------------------------------------------------------------------


@on_both
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_objects_that_are_not_flushed_yet_go_with_the_job(
    store: Store, engine: Engine, invoices: None, effects: Effects, end: str
) -> None:
    onefold = store.open()
    with Session(engine) as session:
        session.add(Invoice(id=7))
        onefold.within(session).enqueue("invoice.email", unique_key="7")
        assert list(session.new), "an enqueue flushes nothing"
        getattr(session, end)()

        stored = session.get(Invoice, 7) is not None

    assert stored == (end == "commit")
    assert len(effects.jobs) == (end == "commit")


@on_both
def test_a_session_that_failed_to_flush_says_so_itself(
    store: Store, engine: Engine, invoices: None
) -> None:
    onefold = store.open()
    with Session(engine) as session:
        session.add_all([Invoice(id=7)])
        session.commit()
        session.expunge_all()
        session.add(Invoice(id=7))
        with pytest.raises(DBAPIError):
            session.flush()

        with pytest.raises(PendingRollbackError):
            onefold.within(session).enqueue("email")

        session.rollback()
        assert onefold.within(session).enqueue("email").inserted


@on_both
def test_a_session_of_several_engines_is_told_to_name_one(
    store: Store, engine: Engine, invoices: None, effects: Effects
) -> None:
    onefold = store.open()
    with Session(binds={Invoice: engine}) as session:
        with pytest.raises(WrongConnection, match=r"session\.connection\("):
            onefold.within(session)

        session.add(Invoice(id=7))
        chosen = session.connection(bind_arguments={"mapper": Invoice})
        onefold.within(chosen).enqueue("email", unique_key="k")
        session.commit()

    assert effects.jobs == [("email", "k")]


@on_every_async_driver
async def test_a_sync_session_inside_run_sync_is_accepted(
    store: Store, driver: str, effects: Effects
) -> None:
    """Code that is written for sync sessions runs there, and ours with it."""
    onefold = store.open()
    engine = async_engine_of(store, driver)

    def work(session: Session) -> None:
        onefold.within(session).enqueue("email", unique_key="k")
        with onefold.within(session).once("import", "sha") as claim:
            assert claim is not None
            claim.result = 1

    async with AsyncSession(engine) as session:
        await session.run_sync(work)
        await session.commit()
    await engine.dispose()

    assert effects.jobs == [("email", "k")]
    assert effects.claims == [("sha", 1)]


# --- autobegin and AUTOCOMMIT ---------------------------------------------------------------------


@on_every_driver
def test_an_enqueue_begins_as_any_statement_would(store: Store, driver: str) -> None:
    onefold, engine = store.open(), engine_of(store, driver)
    with engine.connect() as connection:
        assert not connection.in_transaction()
        job = onefold.within(connection).enqueue("email")
        assert connection.in_transaction()
        connection.rollback()
        assert onefold.get(job.id) is None

        job = onefold.within(connection).enqueue("email")
        connection.commit()
        assert onefold.get(job.id) is not None

        onefold.within(connection).enqueue("email", unique_key="left open")
    engine.dispose()

    assert len(onefold.find()) == 1, "a connection that is closed rolls back"


@on_every_driver
@pytest.mark.parametrize("where", ["engine", "engine option", "connection option"])
def test_autocommit_is_no_transaction(
    store: Store, driver: str, where: str, effects: Effects
) -> None:
    onefold = store.open()
    option: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
    engine = engine_of(store, driver, **(option if where == "engine" else {}))
    source = engine.execution_options(**(option if where == "engine option" else {}))
    with source.connect() as connection:
        if where == "connection option":
            connection.execution_options(**option)

        with pytest.raises(NoTransaction, match="Open a transaction around the call"):
            onefold.within(connection).enqueue("email")

        assert not connection.in_transaction(), "nothing was begun by the refusal"
    with Session(source) as session:
        if where == "connection option":
            session.connection(execution_options=option)
        with pytest.raises(NoTransaction):
            onefold.within(session).enqueue("email")
    engine.dispose()

    assert effects.jobs == []


@on_both
def test_a_session_that_does_not_begin_by_itself_is_begun_by_the_caller(
    store: Store, engine: Engine, effects: Effects
) -> None:
    onefold = store.open()
    with Session(engine, autobegin=False) as session:
        with pytest.raises(NoTransaction, match="Open a transaction around the call"):
            onefold.within(session)
        with session.begin():
            within = onefold.within(session)
            within.enqueue("email", unique_key="k")
        with pytest.raises(NoTransaction):
            within.enqueue("email")

    assert effects.jobs == [("email", "k")]


@on_every_async_driver
async def test_autocommit_is_no_transaction_when_awaited(
    store: Store, driver: str, effects: Effects
) -> None:
    onefold = store.open()
    engine = async_engine_of(store, driver, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        with pytest.raises(NoTransaction, match="AsyncConnection"):
            await onefold.within(connection).aenqueue("email")
        assert not connection.in_transaction()
    async with AsyncSession(engine) as session:
        with pytest.raises(NoTransaction, match="AsyncSession"):
            await onefold.within(session).aenqueue("email")
    await engine.dispose()

    assert effects.jobs == []


# --- statements -----------------------------------------------------------------------------------


@on_every_driver
def test_events_see_our_statements_as_the_driver_gets_them(store: Store, driver: str) -> None:
    onefold, engine = store.open(), engine_of(store, driver)
    seen: list[str] = []

    @event.listens_for(engine, "before_cursor_execute", retval=True)
    def _(
        _1: object, _2: object, statement: str, parameters: Any, _3: object, many: object
    ) -> tuple[str, Any]:
        assert not many
        seen.append(statement)
        return f"{statement} /* by the caller's hook */", parameters

    with engine.begin() as connection:
        job = onefold.within(connection).enqueue("email", {"text": "100 % %s %(x)s :x $1 ?"})
    engine.dispose()

    assert any("insert into" in statement for statement in seen)
    stored = onefold.get(job.id)
    assert stored is not None
    assert stored.payload == {"text": "100 % %s %(x)s :x $1 ?"}


@on_postgres
@pytest.mark.parametrize("options", [{"stream_results": True}, {"yield_per": 10}])
def test_a_connection_that_streams_is_accepted(
    store: Store, dialect: Dialect, engine: Engine, options: dict[str, Any]
) -> None:
    """Its selects are declared as cursors, which an insert cannot be."""
    onefold = store.open()
    with engine.execution_options(**options).begin() as connection:
        answers = onefold.within(connection).enqueue_many([NewJob("a"), NewJob("b")])
        rows = connection.execute(text("select n from generate_series(1, 30) as n")).fetchall()

    assert answers.inserted == 2
    assert len(rows) == 30


# --- what is refused ------------------------------------------------------------------------------


@on_both
def test_what_makes_connections_and_a_transaction_are_no_connection(
    store: Store, engine: Engine
) -> None:
    onefold = store.open()
    aengine = async_engine_of(store, ASYNC_DRIVERS[store.dialect])
    hints: list[tuple[object, str]] = [
        (engine, r"with engine\.begin\(\) as connection"),
        (aengine, r"async with engine\.begin\(\) as connection"),
        (sessionmaker(engine), r"with make_session\.begin\(\) as session"),
        (async_sessionmaker(aengine), r"async with make_session\.begin\(\) as session"),
    ]
    for thing, hint in hints:
        with pytest.raises(WrongConnection, match=hint):
            onefold.within(thing)
    for source in (Session(engine), engine.connect()):
        with (
            source as connection,
            connection.begin() as begun,
            pytest.raises(WrongConnection, match="is a transaction"),
        ):
            onefold.within(begun)


@on_both
def test_a_session_that_is_closed_for_good_is_refused(store: Store, engine: Engine) -> None:
    onefold = store.open()
    session = Session(engine, close_resets_only=False)
    within = onefold.within(session)
    session.close()

    with pytest.raises(WrongConnection, match="is not open"):
        onefold.within(session)
    with pytest.raises(WrongConnection, match="is not open"):
        within.enqueue("email")


@on_both
def test_a_session_that_was_closed_begins_anew(
    store: Store, engine: Engine, effects: Effects
) -> None:
    onefold = store.open()
    session = Session(engine)
    within = onefold.within(session)
    within.enqueue("email", unique_key="gone")
    session.close()

    within.enqueue("email", unique_key="kept")
    session.commit()
    session.close()

    assert effects.jobs == [("email", "kept")]


@on_every_async_driver
async def test_what_is_not_started_and_a_sync_side_outside_run_sync_are_refused(
    store: Store, driver: str, effects: Effects
) -> None:
    onefold, engine = store.open(), async_engine_of(store, driver)
    with pytest.raises(WrongConnection, match="is not open"):
        onefold.within(engine.connect())
    async with AsyncSession(engine) as session:
        with pytest.raises(WrongConnection, match="Give it the AsyncSession, and await"):
            onefold.within(session.sync_session).enqueue("email")
        assert not session.in_transaction(), "nothing was begun by the refusal"

        await onefold.within(session).aenqueue("email", unique_key="k")
        with pytest.raises(WrongConnection, match="Give it the AsyncSession, and await"):
            onefold.within(session.sync_session).enqueue("email")
        await session.commit()
    async with engine.connect() as connection:
        with pytest.raises(WrongConnection, match="Give it the AsyncConnection, and await"):
            onefold.within(connection.sync_connection).enqueue("email")
        assert not connection.in_transaction()
    await engine.dispose()

    assert effects.jobs == [("email", "k")]


@on_postgres
def test_an_engine_that_nobody_here_knows_is_refused(store: Store, dialect: Dialect) -> None:
    """No server of it is needed: the dialect of the engine says it."""
    engine = create_engine("mysql+pymysql://nobody@nowhere/nothing", module=sqlite3)
    with Session(engine) as session, pytest.raises(WrongConnection, match="is mysql's"):
        store.open().within(session)
