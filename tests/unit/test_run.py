"""`run` and `run_async`: the same generator, blocking and awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

import pytest

from onefold.operations.statement import run, run_async

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


both = pytest.mark.parametrize("runner", [blocking, awaited])


def refuse(asked: str) -> int:
    raise LookupError(asked)


@both
def test_what_goes_wrong_is_raised_where_it_was_asked(runner: Runner[None]) -> None:
    closed: list[str] = []

    def operation() -> Asking[None]:
        try:
            yield "one"
        finally:
            closed.append("closed")

    with pytest.raises(LookupError, match="one"):
        runner(operation(), refuse)

    assert closed == ["closed"]


@both
def test_a_generator_may_have_an_answer_to_what_went_wrong(runner: Runner[int]) -> None:
    def operation() -> Asking[int]:
        try:
            yield "one"
        except LookupError:
            return (yield "two")
        return 0

    def execute(asked: str) -> int:
        return refuse(asked) if asked == "one" else 2

    assert runner(operation(), execute) == 2


@both
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
