"""`run` and `run_async`: the only two functions that know sync from async.

What goes wrong while a generator's wish is carried out is raised where it asked. A procedure may
have an answer to it; an operation never has, for a failed statement has killed its transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")
T = TypeVar("T")


def run(operation: Generator[Asked, Answered, T], execute: Callable[[Asked], Answered]) -> T:
    """Drive a generator with a function that does what it asks for: run one statement."""
    try:
        asked = next(operation)
        while True:
            try:
                answered = execute(asked)
            except Exception as error:  # noqa: BLE001 - the generator's to answer or pass on
                asked = operation.throw(error)
            else:
                asked = operation.send(answered)
    except StopIteration as finished:
        value: T = finished.value
        return value
    finally:
        operation.close()


async def run_async(
    operation: Generator[Asked, Answered, T], execute: Callable[[Asked], Awaitable[Answered]]
) -> T:
    """`run`, for a function that must be awaited."""
    try:
        asked = next(operation)
        while True:
            try:
                answered = await execute(asked)
            except Exception as error:  # noqa: BLE001 - the generator's to answer or pass on
                asked = operation.throw(error)
            else:
                asked = operation.send(answered)
    except StopIteration as finished:
        value: T = finished.value
        return value
    finally:
        operation.close()
