"""A function becomes a job and stays a function; what could never run is refused at once."""

import asyncio
import inspect
import pickle
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any

import pytest

from onefold import ConflictingOptions, InvalidInput, Onefold, Unique, UsageError
from onefold.effects.run import Run
from onefold.jobs.job_function import DeclaredJob

onefold = Onefold("sqlite:///never-opened.db")


@onefold.job(kind="numbers.add", queue="maths", timeout=timedelta(seconds=5))
def add(left: int, right: int = 1) -> int:
    """The sum."""
    return left + right


@onefold.job
async def aadd(run: Run, left: int, right: int = 1) -> int:
    return left + right


@pytest.fixture
def fresh() -> Onefold:
    return Onefold("sqlite:///never-opened.db")


def test_it_looks_and_is_called_and_pickled_like_the_function() -> None:
    run: Any = None
    assert (add(2, right=3), asyncio.run(aadd(run, 2))) == (5, 3)
    assert (add.__name__, add.__doc__, add.__module__) == ("add", "The sum.", __name__)
    assert list(inspect.signature(add).parameters) == ["left", "right"]
    assert repr(add).startswith(f"<job 'numbers.add': {__name__}.add (line ")
    assert pickle.loads(pickle.dumps(add)) is add
    with pytest.raises(UsageError, match="declare it with unique="):
        add.unique_key(1)


def test_two_functions_of_one_kind_are_refused_by_their_places(fresh: Onefold) -> None:
    @fresh.job(kind="send")
    def send_letter() -> None: ...

    with pytest.raises(InvalidInput, match=r"'send' is declared twice, by .*send_letter.* and by"):

        @fresh.job(kind="send")
        def send_parcel() -> None: ...

    with pytest.raises(InvalidInput, match="declared twice"):

        @fresh.job
        def send() -> None: ...

    assert fresh.jobs.get("send") is send_letter


def test_the_same_function_declared_again_replaces_itself(fresh: Onefold) -> None:
    """A module is reloaded, or a cell of a notebook is run again."""

    def declared() -> DeclaredJob[..., Any]:
        @fresh.job
        def send() -> None: ...

        return send

    declared()
    again = declared()

    assert fresh.jobs.get("send") is again


def test_a_function_may_be_nested_unless_it_runs_in_another_process(fresh: Onefold) -> None:
    fresh.job(kind="nested")(lambda: None)

    with pytest.raises(ConflictingOptions, match="needs a function that can be imported"):

        @fresh.job(isolation="process")
        def nested() -> None: ...

    with pytest.raises(ConflictingOptions, match="is for plain functions"):

        @fresh.job(isolation="thread")
        async def handle() -> None: ...


def test_a_wrapped_function_keeps_its_signature(fresh: Onefold) -> None:
    def loud(function: Callable[..., int]) -> Callable[..., int]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> int:
            return function(*args, **kwargs)

        return call

    @fresh.job
    @loud
    def wrapped(number: int) -> int:
        return number

    assert wrapped.declaration.arguments.names == ("number",)
    with pytest.raises(InvalidInput, match="number does not match wrapped"):
        wrapped.call("one")


def test_a_static_method_is_declared_from_the_inside(fresh: Onefold) -> None:
    class Mailer:
        @staticmethod
        @fresh.job
        def send(to: int) -> int:
            return to

    assert Mailer.send(3) == 3
    assert isinstance(Mailer.send, DeclaredJob)

    with pytest.raises(InvalidInput, match=r"put @staticmethod above @onefold\.job"):
        fresh.job(staticmethod(add.function))


async def values() -> Any:
    yield 1


NO_FUNCTIONS: list[tuple[Any, str]] = [
    (lambda: None, "kind must be given for a lambda"),
    (print, "function must be a function"),
    (5, "function must be a function"),
    (Onefold, "function must be a function"),
    (classmethod(lambda cls: cls), "is a method already"),
    (values, "is a generator"),
    (Onefold.close, "is a method"),
]


@pytest.mark.parametrize(("function", "sentence"), NO_FUNCTIONS)
def test_what_is_no_plain_function_is_refused(fresh: Onefold, function: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        fresh.job(function)

    assert fresh.jobs.kinds == ()


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("kind", {"kind": "a,b"}),
        ("queue", {"queue": "a*"}),
        ("unique", {"unique": "user"}),
        ("unique", {"unique": Unique("usr")}),
        ("unique", {"unique": Unique(exclude="usr.id")}),
        ("unique_while", {"unique_while": "queued"}),
        ("unique_while", {"unique_while": "sometimes", "unique": Unique()}),
        ("across_kinds", {"across_kinds": True}),
        ("timeout", {"timeout": 5}),
        ("tags", {"tags": "urgent"}),
        ("group", {"group": "usr"}),
        ("group", {"group": "a..b"}),
        ("store_result", {"store_result": 1}),
        ("isolation", {"isolation": "container"}),
        ("retry_on", {"retry_on": (5,)}),
        ("bury_on", {"bury_on": (int,)}),
        ("done_on", {"done_on": "ValueError"}),
        ("on_dead", {"on_dead": "call me"}),
        ("retries", {"retries": 5}),
    ],
)
def test_a_wrong_option_is_refused_by_name(
    fresh: Onefold, field: str, options: dict[str, Any]
) -> None:
    def handle(user: dict[str, Any]) -> None: ...

    with pytest.raises(InvalidInput) as caught:
        fresh.job(**options)(handle)

    assert caught.value.field == field
    assert fresh.jobs.kinds == ()
