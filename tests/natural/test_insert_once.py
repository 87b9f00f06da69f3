"""`insert_once`: the row is new, or it was there; and what is refused before anything is sent."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from onefold import DatabaseBusy, Existing, Inserted, InvalidInput, Onefold, is_unique_violation
from tests.fixtures.colours import Coloured, Store
from tests.fixtures.connection import Kind
from tests.natural.payments import Payments

KEY = ("merchant", "order")
ROW = {"merchant": "acme", "order": "o-7", "amount": 5}


async def test_h168_a_row_is_inserted_once_with_every_library(
    every: Kind, store: Store, onefold: Coloured, payments: Payments
) -> None:
    connection = await every.connect(store)
    await connection.begin()
    within = onefold.within(connection.raw)

    first = await within.insert_once(payments.name, ROW, on=KEY)
    again = await within.insert_once(payments.name, ROW, on=KEY)
    other = await within.insert_once(payments.name, {**ROW, "order": "o-8"}, on=KEY)
    await connection.commit()

    assert isinstance(first, Inserted)
    assert isinstance(other, Inserted)
    assert list(first.row) == ["id", *ROW, "reference"]
    assert (first.row["merchant"], first.row["order"]) == ("acme", "o-7")
    assert again == Existing(first.row, ())
    assert payments.orders == ["o-7", "o-8"]


async def test_a_row_says_in_which_columns_it_differs(
    kind: Kind, store: Store, onefold: Coloured, payments: Payments
) -> None:
    """As the database compares: 5 is 5.00, and nothing is not something."""
    payments.run(
        f'insert into {payments.quoted} (merchant, "order", amount, reference)'
        " values ('acme', 'o-7', 5.00, 'r')"
    )
    connection = await kind.connect(store)
    await connection.begin()
    within = onefold.within(connection.raw)

    async def differs(**values: Any) -> tuple[str, ...]:
        answer = await within.insert_once(payments.name, {**ROW, **values}, on=KEY)
        assert isinstance(answer, Existing)
        return answer.differs

    assert await differs() == ()
    assert await differs(amount=6) == ("amount",)
    assert await differs(reference="r") == ()
    assert await differs(reference=None) == ("reference",)
    assert await differs(reference="s", amount=6) == ("amount", "reference")
    await connection.rollback()


async def test_a_name_may_be_any_that_the_database_takes(
    kind: Kind, store: Store, onefold: Coloured, payments: Payments
) -> None:
    odd = 'a "b" %s :x'
    table = f"onefold_{odd}" if store.dialect == "sqlite" else odd
    schema = "" if store.dialect == "sqlite" else f'"{store.schema}".'
    quoted = '"' + table.replace('"', '""') + '"'
    payments.run(f'create table {schema}{quoted} ("Käse; --" integer primary key)')
    connection = await kind.connect(store)
    await connection.begin()
    named = table if store.dialect == "sqlite" else f"{store.schema}.{table}"
    within = onefold.within(connection.raw)

    assert await within.insert_once(named, {"Käse; --": 1}, on="Käse; --") == Inserted(
        {"Käse; --": 1}
    )
    assert isinstance(await within.insert_once(named, {"Käse; --": 1}, on=["Käse; --"]), Existing)
    await connection.rollback()


async def test_h168_a_violation_of_another_constraint_is_the_drivers_error(
    kind: Kind, store: Store, onefold: Coloured, payments: Payments
) -> None:
    payments.run(
        f"insert into {payments.quoted} (merchant, \"order\", reference) values ('x', 'y', 'r')"
    )
    connection = await kind.connect(store)
    await connection.begin()

    with pytest.raises(Exception, match="reference") as caught:
        await onefold.within(connection.raw).insert_once(
            payments.name, {**ROW, "reference": "r"}, on=KEY
        )
    await connection.rollback()

    assert is_unique_violation(caught.value)
    assert payments.orders == ["y"]


BAD: list[tuple[str, Any, Any, Any]] = [
    ("table", 7, ROW, KEY),
    ("table", "", ROW, KEY),
    ("table", "a.b.c", ROW, KEY),
    ("table", ".payment", ROW, KEY),
    ("table", "nul\x00", ROW, KEY),
    ("table", "nowhere", ROW, KEY),
    ("values", None, [], KEY),
    ("values", None, {7: 1}, KEY),
    ("values", None, {**ROW, "amount": "a\x00b"}, KEY),
    ("values", None, {**ROW, "nothing": 1}, KEY),
    ("on", None, ROW, ()),
    ("on", None, ROW, 7),
    ("on", None, ROW, [7]),
    ("on", None, ROW, ("merchant", "merchant")),
    ("on", None, ROW, ("merchant", "reference")),
    ("on", None, {**ROW, "order": None}, KEY),
    ("on", None, ROW, "merchant"),  # an index on an expression
    ("on", None, ROW, "amount"),  # and a partial one
    ("on", None, ROW, ("merchant", "amount")),
    ("on", None, ROW, ("merchant", "order", "amount")),
]


async def test_bad_input_is_refused_before_the_transaction_can_be_hurt(
    kind: Kind, store: Store, onefold: Coloured, payments: Payments
) -> None:
    payments.run(f"create unique index part on {payments.quoted} (amount) where amount > 1")
    payments.run(f"create unique index shout on {payments.quoted} (upper(merchant))")
    connection = await kind.connect(store)
    await connection.begin()
    within = onefold.within(connection.raw)

    for field, table, values, on in BAD:
        with pytest.raises(InvalidInput) as caught:
            await within.insert_once(payments.name if table is None else table, values, on=on)
        assert caught.value.field == field, (table, values, on)
    await within.insert_once(payments.name, ROW, on=KEY)
    await connection.commit()

    assert payments.orders == ["o-7"]


async def test_a_row_that_can_never_be_seen_is_not_looked_for_forever(
    kind: Kind, store: Store, onefold: Coloured, payments: Payments
) -> None:
    """A trigger that drops the insert leaves neither a row nor an error."""
    if store.dialect == "sqlite":
        payments.run(
            f"create trigger never before insert on {payments.quoted}"
            " begin select raise(ignore); end"
        )
    else:
        function = f'"{store.schema}".never()'
        payments.run(
            f"create function {function} returns trigger language plpgsql"
            " as $$ begin return null; end $$;"
            f" create trigger never before insert on {payments.quoted} for each row"
            f" execute function {function}"
        )
    connection = await kind.connect(store)
    await connection.begin()

    with pytest.raises(DatabaseBusy, match="came and went"):
        await onefold.within(connection.raw).insert_once(payments.name, ROW, on=KEY)
    await connection.rollback()


@pytest.mark.parametrize(
    ("column", "kind_of", "value", "other"),
    [
        ("document", "json", '{"a": 1}', '{"a": 2}'),
        ("document", "jsonb", '{"a": 1}', '{"a": 2}'),
        ("short", "varchar(3)", "abc", "abd"),
        ("price", "numeric(4, 1)", Decimal("1.05"), Decimal("1.2")),
        ("many", "integer[]", [1, 2], [2, 1]),
        ("many", "integer[]", [None], []),
    ],
    ids=["json", "jsonb", "varchar", "numeric", "array", "nulls"],
)
async def test_types_of_postgres_are_compared_as_they_are_stored(
    column: str, kind_of: str, value: Any, other: Any, postgres_types: Any
) -> None:
    within, table = postgres_types(column, kind_of)
    first = within.insert_once(table, {"key": 1, column: value}, on="key")
    same = within.insert_once(table, {"key": 1, column: value}, on="key")
    differs = within.insert_once(table, {"key": 1, column: other}, on="key")

    assert isinstance(first, Inserted)
    assert same == Existing(first.row, ())
    assert differs == Existing(first.row, (column,))


@pytest.mark.parametrize(
    ("kind_of", "value"),
    [
        ("timestamptz(0)", datetime(2026, 1, 1, 12, 0, 0, 400_000, tzinfo=UTC)),
        ("numeric(4, 1)", Decimal("1.04")),
        ("character(4)", "ab"),
    ],
    ids=["timestamptz", "numeric", "character"],
)
async def test_a_key_is_found_as_it_is_stored(
    kind_of: str, value: Any, postgres_types: Any
) -> None:
    within, table = postgres_types("rounded", f"{kind_of} unique")
    first = within.insert_once(table, {"key": 1, "rounded": value}, on="rounded")

    assert isinstance(first, Inserted)
    again = within.insert_once(table, {"key": 1, "rounded": value}, on="rounded")
    assert again == Existing(first.row, ())


@pytest.fixture
def postgres_types(postgres_url: str, postgres_schema: str) -> Any:
    """A table with a column of a type of its own."""
    onefold = Onefold(postgres_url, schema=postgres_schema)
    onefold.migrate()
    connection = psycopg.connect(postgres_url)

    def make(column: str, kind_of: str) -> tuple[Any, str]:
        connection.execute(
            f'create table "{postgres_schema}".typed ('
            f"key integer primary key, {column} {kind_of}, "
            "other integer, unique (other) include (key))".encode()
        )
        return onefold.within(connection), f"{postgres_schema}.typed"

    yield make
    connection.close()
    onefold.close()


def test_columns_that_an_index_merely_carries_are_no_part_of_the_key(postgres_types: Any) -> None:
    within, table = postgres_types("note", "text")
    row = {"key": 1, "other": 2}

    assert isinstance(within.insert_once(table, row, on="other"), Inserted)
    assert isinstance(within.insert_once(table, {**row, "key": 3}, on="other"), Existing)
    with pytest.raises(InvalidInput, match="key, other"):
        within.insert_once(table, row, on=("key", "other"))
