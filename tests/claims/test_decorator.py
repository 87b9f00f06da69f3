"""`once` as a decorator: which calls are the same call, and what the second of them gets."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import InvalidInput
from tests.fixtures.colours import Coloured, Store


async def test_f015_the_key_is_made_of_the_arguments_as_the_signature_binds_them(
    onefold: Coloured,
) -> None:
    calls: list[Any] = []

    def add(first: int, second: int = 1, *, scale: int = 1) -> int:
        calls.append((first, second, scale))
        return (first + second) * scale

    once = onefold.once("add")(onefold.function(add))
    same = [
        await once(1),
        await once(1, 1),
        await once(first=1),
        await once(second=1, first=1),
        await once(1, scale=1),
        await once(scale=1, second=1, first=1),
    ]

    assert same == [2] * 6
    assert calls == [(1, 1, 1)]


async def test_f015_large_and_nested_arguments_have_a_short_stable_key(onefold: Coloured) -> None:
    calls: list[int] = []

    def work(document: Any, *rest: Any, **more: Any) -> int:
        calls.append(1)
        return len(document["text"])

    decorated = onefold.once("work")(onefold.function(work))
    big = {"text": "x" * 100_000, "tags": ["ü", None, 1.5]}

    first = await decorated(big, 1, 2, flag=True, other=None)
    second = await decorated(
        {"tags": ["ü", None, 1.5], "text": "x" * 100_000}, 1, 2, other=None, flag=True
    )

    assert first == second == 100_000
    assert calls == [1]


async def test_two_functions_under_one_name_do_not_share_keys(onefold: Coloured) -> None:
    def one(x: int) -> str:
        return "one"

    def two(x: int) -> str:
        return "two"

    decorate = onefold.once("shared")

    assert await decorate(onefold.function(one))(1) == "one"
    assert await decorate(onefold.function(two))(1) == "two"


async def test_a_callable_makes_the_key_of_the_arguments(onefold: Coloured) -> None:
    calls: list[object] = []

    def work(user: int, connection: object) -> int:
        calls.append(connection)
        return user

    def key(user: int, connection: object) -> str:
        return f"user:{user}"

    decorated = onefold.once("work", key)(onefold.function(work))

    assert await decorated(7, object()) == 7
    assert await decorated(7, connection=object()) == 7
    assert len(calls) == 1
    assert (await onefold.claim("work", "user:7")).result == 7


@pytest.mark.parametrize(
    ("key", "argument", "sentence"),
    [((), object(), "key cannot be made of the arguments"), ((5,), 7, "key"), ((int,), 7, "key")],
    ids=["object", "number", "number made of a call"],
)
async def test_f015_what_makes_no_key_is_refused(
    onefold: Coloured, key: tuple[Any, ...], argument: object, sentence: str
) -> None:
    def work(argument: object) -> None:
        pytest.fail("it has no key, so it must not run")

    with pytest.raises(InvalidInput, match=sentence) as caught:
        await onefold.once("work", *key)(onefold.function(work))(argument)

    assert caught.value.field == "key"


@pytest.mark.parametrize("wait", [None, timedelta(milliseconds=10)])
async def test_a_call_that_is_skipped_returns_none(
    onefold: Coloured, wait: timedelta | None
) -> None:
    await onefold.claim("work", "k")

    def work() -> None:
        pytest.fail("two at once")

    once = onefold.once("work", "k", busy="skip", wait=wait)
    assert await once(onefold.function(work))() is None


async def test_a_given_key_is_the_key_of_every_call(onefold: Coloured) -> None:
    calls: list[int] = []

    def work(number: int) -> int:
        calls.append(number)
        return number

    decorated = onefold.once("work", "only")(onefold.function(work))

    assert [await decorated(1), await decorated(2)] == [1, 1]
    assert calls == [1]


async def test_one_decorator_is_for_functions_of_both_colours(store: Store) -> None:
    onefold = store.open()
    once = onefold.once("work", "k")

    @once
    def plain() -> int:
        return 1

    @once
    async def coroutine() -> int:
        return 2

    assert (plain(), await coroutine()) == (1, 1)


async def test_the_first_call_gets_the_object_and_later_ones_its_json(onefold: Coloured) -> None:
    def pair(number: int) -> tuple[int, int]:
        return number, number

    decorated = onefold.once("math")(onefold.function(pair))

    assert [await decorated(1), await decorated(1)] == [(1, 1), [1, 1]]
