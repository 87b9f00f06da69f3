"""Generated values: keys, random texts and times are compared by what they name, on both databases.

A crash makes a handler use other numbers of a sequence, and other random texts, than a clean run.
"""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import flask
import psycopg
import pytest

from onefold import Onefold, Run
from onefold.testing import (
    NotIdempotent,
    RouteRequest,
    aassert_idempotent,
    assert_idempotent,
    effect,
)
from onefold.web import flask as in_flask
from tests.fixtures.proof import proved
from tests.testing.zoo import Shop

Twin: TypeAlias = Callable[..., Any]
Twins: TypeAlias = Callable[["Desk"], tuple[Twin, Twin]]

TABLES = {
    "?": (
        "create table customer (id integer primary key autoincrement, name text not null)",
        (
            "create table booking (id integer primary key autoincrement, order_id integer unique,"
            " token text not null default (lower(hex(randomblob(16)))),"
            " customer_id integer references customer)"
        ),
        "create table invoice (id integer primary key autoincrement, order_id integer unique)",
        (
            "create table part (id integer primary key autoincrement, name text not null,"
            " whole_id integer references part)"
        ),
    ),
    "%s": (
        "create table customer (id serial primary key, name text not null)",
        (
            "create table booking (id bigint generated always as identity primary key,"
            " order_id integer unique, token text not null default gen_random_uuid(),"
            " customer_id integer references customer)"
        ),
        "create sequence invoice_number increment 10 cache 5",
        (
            "create table invoice (order_id integer unique,"
            " id integer primary key default nextval('invoice_number'))"
        ),
        (
            "create table part (id serial primary key, name text not null,"
            " whole_id integer references part)"
        ),
    ),
}


class Desk:
    """Books an order in several ways."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.onefold: Onefold = shop.onefold
        with shop.connect() as connection:
            for statement in TABLES[shop.mark]:
                connection.execute(statement)

    def execute(self, tx: Any, sql: str, *values: object) -> Any:
        return tx.execute(self.shop.sql(sql), values)

    def one(self, tx: Any, sql: str, *values: object) -> Any:
        (value,) = self.execute(tx, sql, *values).fetchone()
        return value

    def replace(self, tx: Any, table: str = "booking") -> int:
        """The id of a new row, also if there was one."""
        self.execute(tx, f"delete from {table} where order_id = 7")
        return int(self.one(tx, f"insert into {table} (order_id) values (7) returning id"))

    def keep(self, tx: Any, token: str | None = None) -> int:
        """The id of the row, new or not."""
        insert = "insert into booking (order_id, token) values (7, ?) on conflict do nothing"
        self.execute(tx, insert, token or str(uuid4()))
        return int(self.one(tx, "select id from booking"))

    def leave_gap(self, table: str = "booking") -> None:
        """Use up a number."""
        with self.shop.connect() as tx:
            self.execute(tx, f"insert into {table} (order_id) values (8)")
            self.execute(tx, f"delete from {table} where order_id = 8")

    def replaced(self, table: str = "booking") -> int:
        with self.shop.connect() as tx:
            return self.replace(tx, table)

    def kept(self, token: str | None = None) -> int:
        with self.shop.connect() as tx:
            return self.keep(tx, token)


ALL: dict[str, Twins] = {}


def twins(make: Twins) -> None:
    """A handler with a bug, and a correct one."""
    ALL[make.__name__] = make


def _token(desk: Desk) -> str:
    """A text that only the first attempt stores."""
    token = str(uuid4())
    desk.kept(token)
    return token


def in_step_name(_: Desk, run: Run, name: object) -> None:
    run.step(f"charge-{name}", effect, "charge", 7, key="7")


USES: dict[str, tuple[Callable[[Desk], object], Callable[[Desk, Run, Any], object]]] = {
    "id_in_payload": (
        Desk.replaced,
        lambda desk, _, name: desk.onefold.enqueue("charge", {"booking": name}, unique_key="7").id,
    ),
    "id_in_unique_key": (
        Desk.replaced,
        lambda desk, _, name: desk.onefold.enqueue("charge", unique_key=f"booking-{name}").id,
    ),
    "id_in_effect": (
        Desk.replaced,
        lambda _, run, name: effect("mail", {"booking": name}, key=run.key("mail")),
    ),
    "id_in_url_and_key": (
        Desk.replaced,
        lambda desk, _, name: desk.shop.post(f"bookings/{name}/charges", 7, f"charge-{name}"),
    ),
    "id_in_step_name": (_token, in_step_name),
    "id_in_result": (_token, lambda _, __, name: {"booking": name}),
}
"""What a wrong handler names its row by, and where; a correct one by the id that is stored."""


def _using(name_of: Any, use: Any) -> Twins:
    def make(desk: Desk) -> tuple[Twin, Twin]:
        def bad(run: Run) -> Any:
            return use(desk, run, name_of(desk))

        def good(run: Run) -> Any:
            desk.leave_gap()
            return use(desk, run, desk.kept())

        return bad, good

    return make


ALL.update({name: _using(*use) for name, use in USES.items()})


@twins
def rows_that_refer_to_each_other(desk: Desk) -> tuple[Twin, Twin]:
    customer = "insert into customer (name) values ('Ann') returning id"
    booking = "insert into booking (order_id, customer_id) values (7, ?) on conflict do nothing"

    def bad() -> None:
        with desk.shop.connect() as tx:
            desk.execute(
                tx, "delete from customer where id not in (select customer_id from booking)"
            )
            number = desk.one(tx, customer)
        with desk.shop.connect() as tx:
            desk.execute(tx, booking, number)

    def good(run: Run) -> None:
        with run.transaction() as tx:
            number = desk.one(tx, customer)
            desk.execute(tx, booking, number)
            found = desk.one(tx, "select id from booking")
            desk.execute(tx, "update customer set name = ?", f"Ann of {found}")
            run.within().enqueue(
                "charge", {"of": [number, found], "link": f"/b/{found}/c/{number}"}
            )

    return bad, good


@twins
def text_that_the_database_makes(desk: Desk) -> tuple[Twin, Twin]:
    """Random in SQLite, a UUID in PostgreSQL."""

    def bad(run: Run) -> None:
        token = secrets.token_urlsafe()
        desk.kept(token)
        with run.transaction():
            run.within().enqueue("mail", {"link": f"https://x.example/{token}?a=1"})

    def good(run: Run) -> None:
        with run.transaction() as tx:
            booking = desk.replace(tx)
            token = desk.one(tx, "select token from booking where id = ?", booking)
            run.within().enqueue("mail", {"link": f"https://x.example/{token}?a=1"})

    return bad, good


@twins
def text_that_the_handler_makes(desk: Desk) -> tuple[Twin, Twin]:
    def bad(run: Run) -> None:
        token = secrets.token_urlsafe()
        desk.kept(token)
        effect("mail", f"https://x.example/reset/{token}", key=run.key("mail"))

    def good(run: Run) -> None:
        desk.kept(secrets.token_urlsafe())
        with desk.shop.connect() as tx:
            token = desk.one(tx, "select token from booking")
        effect("mail", f"https://x.example/reset/{token}", key=run.key("mail"))

    return bad, good


@twins
def sequence_with_gaps(desk: Desk) -> tuple[Twin, Twin]:
    def bad() -> None:
        number = desk.replaced("invoice")
        desk.onefold.enqueue("print", {"text": f"INV-{number} of 10"}, idempotency_key="7")

    def good(run: Run) -> None:
        desk.leave_gap("invoice")
        with run.transaction() as tx:
            number = desk.replace(tx, "invoice")
            run.within().enqueue("print", {"text": f"INV-{number} of 10"})

    return bad, good


@twins
def two_rows_in_any_order(desk: Desk) -> tuple[Twin, Twin]:
    """Rows that only their jobs tell apart."""
    insert = "insert into booking (token) values ('new') returning id"

    def book(run: Run, names: list[str]) -> None:
        with run.transaction() as tx:
            for name in sorted(names, reverse=run.attempt > 1):
                run.within().enqueue("mail", {"booking": desk.one(tx, insert), "name": name})

    def bad(run: Run) -> None:
        book(run, ["ann", "bob" if run.attempt == 1 else "ann"])

    def good(run: Run) -> None:
        book(run, ["ann", "bob"])

    return bad, good


@twins
def parts_of_parts_in_any_order(desk: Desk) -> tuple[Twin, Twin]:
    """Rows in the middle that only the ends of a tree tell apart."""
    insert = "insert into part (name, whole_id) values (?, ?) returning id"

    def build(run: Run, names: list[str]) -> None:
        with run.transaction() as tx:
            car = desk.one(tx, insert, "car", None)
            for name in sorted(names, reverse=run.attempt > 1):
                axle = desk.one(tx, insert, "axle", car)
                part = desk.one(tx, insert, name, axle)
                run.within().enqueue("draw", {"path": f"{car}/{axle}/{part}"})

    def bad(run: Run) -> None:
        build(run, ["left", "right" if run.attempt == 1 else "left"])

    def good(run: Run) -> None:
        build(run, ["left", "right"])

    return bad, good


@twins
def token_before_id(desk: Desk) -> tuple[Twin, Twin]:
    """A text in which a token has the sign that separates words."""
    insert = "insert into booking (token) values (?) returning id"

    def book(run: Run, *, is_good: bool) -> None:
        tokens = [f"{secrets.token_hex(4)}-{secrets.token_hex(4)}" for _ in range(2)]
        with run.transaction() as tx:
            for number, name in enumerate(["ann", "bob"]):
                booking = desk.one(tx, insert, tokens[number])
                token = tokens[number if is_good or run.attempt == 1 else 0]
                payload = {"name": name, "link": f"https://x.example/{token}/{booking}"}
                run.within().enqueue("mail", payload)

    def bad(run: Run) -> None:
        book(run, is_good=False)

    def good(run: Run) -> None:
        book(run, is_good=True)

    return bad, good


@twins
def time_in_row_and_payload(desk: Desk) -> tuple[Twin, Twin]:
    def book(run: Run, seats: int) -> None:
        at, now = datetime.now(UTC).isoformat(), run.now()
        desk.kept(at)
        with run.transaction():
            run.within().enqueue("charge", {"at": at, "now": now, "seats": seats})

    def bad(run: Run) -> None:
        book(run, run.attempt)

    def good(run: Run) -> None:
        book(run, 1)

    return bad, good


on_both = pytest.mark.parametrize("shop", ["postgres", *proved("sqlite")], indirect=True)


@on_both
@pytest.mark.parametrize("name", ALL)
def test_a_generated_value_that_names_another_row_is_found(shop: Shop, name: str) -> None:
    bad, _ = ALL[name](Desk(shop))

    with pytest.raises(NotIdempotent):
        assert_idempotent(shop.onefold.job(store_result=True)(bad))


@on_both
@pytest.mark.parametrize("name", ALL)
def test_a_generated_value_that_names_the_same_row_is_not_accused(shop: Shop, name: str) -> None:
    _, good = ALL[name](Desk(shop))

    assert_idempotent(shop.onefold.job(store_result=True)(good))


def _app(desk: Desk, book: Callable[[in_flask.Once], Any]) -> flask.Flask:
    app = flask.Flask("desk")
    keys = in_flask.Idempotency(desk.onefold)
    keys.init_app(app)

    @app.post("/bookings")
    @keys(principal=lambda: "ann", transaction=desk.onefold)
    def route(once: in_flask.Once) -> Any:
        return book(once), 201

    return app


BOOK = RouteRequest.json("POST", "/bookings", {"order": 7}, idempotency_key="k-1")


@on_both
def test_a_route_responds_with_the_generated_values_of_its_rows(shop: Shop) -> None:
    desk = Desk(shop)

    def good(once: in_flask.Once) -> Any:
        booking = desk.replace(once.connection)
        job = once.within().enqueue("charge", {"booking": booking, "seats": 1})
        return {"booking": booking, "job": job.id, "seats": 1, "request": str(uuid4())}

    assert_idempotent(_app(desk, good), BOOK, onefold=desk.onefold)


@on_both
def test_a_route_that_responds_with_another_value_than_its_row_is_found(shop: Shop) -> None:
    desk = Desk(shop)
    app = flask.Flask("desk")

    @app.post("/bookings")
    def bad() -> Any:
        token = str(uuid4())
        desk.kept(token)
        return {"token": token}

    with pytest.raises(NotIdempotent) as caught:
        assert_idempotent(app, BOOK, onefold=desk.onefold)
    with desk.shop.connect() as connection:
        assert connection.execute("select count(*) from booking").fetchone() == (0,)
    first = caught.value.findings[0].differences[0]
    said, _, expected = first.partition(" instead of ")
    assert said.startswith('~ response: body b\'{"token":')
    assert UUID(expected.split('"')[3]) != UUID(said.split('"')[3])


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_a_handler_has_room_for_few_numbers(shop: Shop) -> None:
    """It fails in a clean run whose sequences begin elsewhere."""

    @shop.onefold.job
    def good(run: Run) -> None:
        with run.transaction() as tx:
            tx.execute("insert into seat default values")

    with shop.connect() as tx:
        tx.execute("create table seat (id integer primary key autoincrement check (id < 9))")
    assert_idempotent(good)


@pytest.mark.parametrize("shop", ["postgres"], indirect=True)
async def test_the_report_names_the_row_that_a_job_should_have(shop: Shop) -> None:
    """Of a job that is stored before the row, whose transaction is rolled back."""
    Desk(shop)

    @shop.onefold.job
    async def bad() -> None:
        url = shop.onefold.context.database.url
        async with await psycopg.AsyncConnection.connect(url) as tx:
            insert = "insert into booking (order_id) values (7) on conflict do nothing returning id"
            if row := await (await tx.execute(insert)).fetchone():
                payload = {"booking": row[0], "seats": 1}
                await shop.onefold.aenqueue("charge", payload, unique_key="7")

    with pytest.raises(NotIdempotent) as caught:
        await aassert_idempotent(bad)
    assert (
        '- job, once missing: charge {"booking":2,"seats":1} unique_key=7',
        '+ job, once too many: charge {"booking":1,"seats":1} unique_key=7',
    ) in [each.differences for each in caught.value.findings]
