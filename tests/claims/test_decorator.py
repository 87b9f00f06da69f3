"""`once` as a decorator: which calls are the same call, and what the second of them gets."""

from typing import Any

import pytest

from onefold import InvalidInput
from tests.fixtures.colours import Coloured, Store


class Counter:
    """A function that says how often it was called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def add(self, first: int, second: int = 1, *, scale: int = 1) -> int:
        self.calls.append((first, second, scale))
        return (first + second) * scale


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
def add(onefold: Coloured, counter: Counter) -> Any:
    def add(first: int, second: int = 1, *, scale: int = 1) -> int:
        return counter.add(first, second, scale=scale)

    return onefold.once("add")(onefold.function(add))


async def test_f015_the_key_is_made_of_the_arguments_as_the_signature_binds_them(
    add: Any, counter: Counter
) -> None:
    same = [
        await add(1),
        await add(1, 1),
        await add(first=1),
        await add(second=1, first=1),
        await add(1, scale=1),
        await add(scale=1, second=1, first=1),
    ]

    assert same == [2] * 6
    assert counter.calls == [(1, 1, 1)]


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


async def test_f015_an_argument_that_cannot_be_part_of_a_key_is_named_in_the_error(
    onefold: Coloured,
) -> None:
    def work(connection: object) -> None:
        pytest.fail("it has no key, so it must not run")

    decorated = onefold.once("work")(onefold.function(work))

    with pytest.raises(InvalidInput, match="key cannot be made of the arguments") as caught:
        await decorated(object())

    assert caught.value.field == "key"


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


@pytest.mark.parametrize("key", [5, int], ids=["number", "number made of a call"])
async def test_what_makes_no_key_is_refused(onefold: Coloured, key: Any) -> None:
    def work(user: int) -> None:
        pytest.fail("it has no key, so it must not run")

    with pytest.raises(InvalidInput) as caught:
        await onefold.once("work", key)(onefold.function(work))(7)

    assert caught.value.field == "key"


async def test_a_call_that_is_skipped_returns_none(onefold: Coloured) -> None:
    await onefold.claim("work", "k")

    def work() -> None:
        pytest.fail("two at once")

    assert await onefold.once("work", "k", busy="skip")(onefold.function(work))() is None


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
