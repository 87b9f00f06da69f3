"""Statements: how parameters are found in SQL and written in a driver's style."""

import asyncio
from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.operations.statement import (
    Sql,
    Style,
    array_literal,
    compiled,
    in_schema,
    quoted,
    run,
    run_async,
)

STYLES: tuple[Style, ...] = ("named", "pyformat", "numbered")


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    "text",
    [
        "select ':a'",
        "select 'it''s :a'",
        'select ":a"',
        "select 1 -- :a isn't one",
        "select x::text",
        "select x::text[]",
        "select array[1,2][a:b]",
        "select ':a' || ':b' -- ':c'\n from t",
    ],
)
def test_what_is_no_parameter_is_left_alone(text: str, style: Style) -> None:
    assert compiled(text, style) == (text, ())


@pytest.mark.parametrize(
    ("text", "numbered"),
    [
        ("select :a::text", "select $1::text"),
        ("select :a::text[]", "select $1::text[]"),
        ("select :a::text::uuid", "select $1::text::uuid"),
        ("select (:a)", "select ($1)"),
        ("select :a_b,:c", "select $1,$2"),
        ("select ':x', :a, ':y'", "select ':x', $1, ':y'"),
        ("-- don't\nselect :a", "-- don't\nselect $1"),
        ("select '--', :a", "select '--', $1"),
        ('select "odd"":name", :a', 'select "odd"":name", $1'),
        (":a", "$1"),
    ],
)
def test_a_parameter_is_found_next_to_anything(text: str, numbered: str) -> None:
    assert compiled(text, "numbered")[0] == numbered


def test_a_percent_sign_is_doubled_for_psycopg_alone() -> None:
    text = "select a % 2, '%x', \"%\" from t where b like :b -- 100 %"

    assert compiled(text, "pyformat")[0] == (
        "select a %% 2, '%%x', \"%%\" from t where b like %(b)s -- 100 %%"
    )
    assert compiled(text, "numbered")[0] == text.replace(":b", "$1")
    assert compiled(text, "named")[0] == text


# --- schemas --------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", ["app", "select", "onefold_2"])
def test_another_schema_takes_the_place_of_the_default_one(schema: str) -> None:
    text = (
        "create schema if not exists onefold;\n"
        "select j.onefold.x from onefold.job as j, public.onefold.y, myonefold.z\n"
        "where to_regclass('onefold.meta') is null -- onefold itself"
    )

    assert in_schema(text, schema) == (
        f'create schema if not exists "{schema}";\n'
        f'select j.onefold.x from "{schema}".job as j, public.onefold.y, myonefold.z\n'
        f"where to_regclass('\"{schema}\".meta') is null -- onefold itself"
    )


def test_every_statement_leaves_the_default_schema_behind() -> None:
    sql = Sql("postgres", schema="elsewhere")

    assert [name for name in sql.names if "onefold." in sql(name).text] == []


@given(st.text(min_size=1))
def test_a_quoted_name_says_its_quotes_twice(name: str) -> None:
    spelled = quoted(name)

    assert spelled[0] == spelled[-1] == '"'
    assert spelled[1:-1].replace('""', '"') == name


@pytest.mark.parametrize(
    ("values", "spelled"),
    [
        ((), "{}"),
        ((None, None), "{}"),
        (("a", "b"), '{"a","b"}'),
        (('say "a"', "back\\slash", "NULL", ""), '{"say \\"a\\"","back\\\\slash","NULL",""}'),
        (("a", None), '{"a",NULL}'),
        ((1, -2), "{1,-2}"),
        ((1, None), "{1,NULL}"),
        ((True, False), "{True,False}"),
        ((1.5, 2.5), [1.5, 2.5]),
        (("a\0b", "c"), ["a\0b", "c"]),
    ],
)
def test_an_array_is_spelled_as_postgres_writes_it(
    values: tuple[object, ...], spelled: object
) -> None:
    assert array_literal(values) == spelled


def test_what_all_rows_have_in_common_is_sent_once() -> None:
    rows = [("a", "q"), ("b", "q")]
    statement = Sql("postgres")("store_jobs", ("id", "queue"), rows, common=frozenset({"queue"}))

    assert statement.arrays(array_literal) == {"id": '{"a","b"}', "queue": '{"q"}'}
    assert statement.arrays() == {"id": ["a", "b"], "queue": ["q"]}


# --- run and run_async ----------------------------------------------------------------------------

T = TypeVar("T")
Asking: TypeAlias = Generator[str, int, T]
Execute: TypeAlias = Callable[[str], int]
Runner: TypeAlias = Callable[[Asking[T], Execute], T]


def blocking(operation: Asking[T], execute: Execute) -> T:
    return run(operation, execute)


def awaited(operation: Asking[T], execute: Execute) -> T:
    async def later(asked: str) -> int:
        await asyncio.sleep(0)
        return execute(asked)

    return asyncio.run(run_async(operation, later))


@pytest.mark.parametrize("runner", [blocking, awaited])
def test_an_interruption_closes_the_operation(runner: Runner[None]) -> None:
    seen: list[type[BaseException]] = []

    def operation() -> Asking[None]:
        try:
            yield "one"
        except BaseException as error:
            seen.append(type(error))
            raise

    def interrupted(_: str) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner(operation(), interrupted)

    assert seen == [GeneratorExit]


def test_an_execute_that_stops_iterating_is_not_taken_for_the_end() -> None:
    def operation() -> Asking[str]:
        yield "one"
        return "done"

    def stops(_: str) -> int:
        return next(iter([]))

    with pytest.raises(RuntimeError, match="StopIteration"):
        run(operation(), stops)
