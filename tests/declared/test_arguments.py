"""Arguments become a payload and come back: by name, by type, or with a sentence."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence  # noqa: TC003 - hints are looked up
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from onefold import Defer, InvalidInput, Retry
from onefold.jobs.arguments import Arguments, Result
from onefold.model.json_text import to_json

if TYPE_CHECKING:
    import fractions

    from onefold.effects.run import Run


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    zips: list[int] = field(default_factory=list[int])


class Parcel(msgspec.Struct):
    to: Address
    weight: Decimal


class Options(TypedDict, total=False):
    express: bool


class Point(NamedTuple):
    x: int
    y: int


class Customer(pydantic.BaseModel):
    name: str
    since: date


class Spelled(pydantic.BaseModel, extra="forbid"):
    user_id: int = pydantic.Field(alias="userId")

    @pydantic.computed_field
    def twice(self) -> int:
        return self.user_id * 2


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr


class Foreign:
    """Nothing that JSON could become."""


def of(function: Callable[..., Any]) -> Arguments:
    return Arguments(function, function.__name__)


def there_and_back(function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The arguments after a journey through JSON text."""
    arguments = of(function)
    text = msgspec.json.encode(arguments.to_payload(args, kwargs))
    positional, named = arguments.from_payload(msgspec.json.decode(text), None)
    assert not positional
    return named


def everything(  # noqa: PLR0917
    number: int,
    ratio: float,
    name: str,
    raw: bytes,
    moment: datetime,
    day: date,
    hour: time,
    span: timedelta,
    key: UUID,
    price: Decimal,
    colour: Colour,
    address: Address,
    parcel: Parcel,
    options: Options,
    point: Point,
    by_number: dict[int, list[str]],
    either: int | str | None,
) -> None: ...


EVERYTHING: dict[str, Any] = {
    "number": 10**30,
    "ratio": 0.5,
    "name": "grün",
    "raw": b"\x00\xff",
    "moment": datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "day": date(2030, 1, 2),
    "hour": time(3, 4),
    "span": timedelta(days=1, microseconds=1),
    "key": UUID(int=7),
    "price": Decimal("1.10"),
    "colour": Colour.RED,
    "address": Address("High Street", [1, 2]),
    "parcel": Parcel(Address("Low Street"), Decimal("0.5")),
    "options": {"express": True},
    "point": Point(1, 2),
    "by_number": {1: ["a"], 2: []},
    "either": "text",
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_type_comes_back_as_it_went(name: str) -> None:
    came = there_and_back(everything, **{**EVERYTHING, "number": 5, name: EVERYTHING[name]})

    assert came[name] == EVERYTHING[name]
    assert type(came[name]) is type(EVERYTHING[name])


def test_arguments_go_by_position_or_by_name_and_defaults_are_written_down() -> None:
    def send(user: int, template: str = "welcome", *, copies: int = 1) -> None: ...
    def add(left: int, right: int = 2, /, *, twice: bool = False) -> None: ...

    sent = {"user": 1, "template": "welcome", "copies": 2}
    assert of(send).to_payload((1,), {"copies": 2}) == sent
    payload = of(add).to_payload((1, 3), {"twice": True})
    assert of(add).from_payload(payload, None) == ((1, 3), {"twice": True})
    assert of(add).from_payload({"left": 1}, None) == ((1, 2), {})


def test_without_hints_and_for_objects_everything_is_plain_json() -> None:
    def plain(anything, rest=None): ...  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
    def send(
        anything: object, more: Any, many: Sequence[Any], named: Mapping[str, Any]
    ) -> None: ...

    came = there_and_back(plain, {"day": date(2030, 1, 2), 3: (1, 2)})  # pyright: ignore[reportUnknownArgumentType]
    assert came == {"anything": {"day": "2030-01-02", "3": [1, 2]}, "rest": None}
    came = there_and_back(send, 1, {"a": None}, (1,), {"b": 2})
    assert came == {"anything": 1, "more": {"a": None}, "many": [1], "named": {"b": 2}}


def test_pydantic_models_go_and_come_with_aliases_and_computed_fields_too() -> None:
    def greet(spelled: Spelled, others: list[Customer], maybe: Customer | None = None) -> None: ...

    spelled, ada = Spelled(userId=7), Customer(name="Ada", since=date(1843, 1, 1))
    greeted = {"spelled": spelled, "others": [ada], "maybe": None}

    assert there_and_back(greet, spelled, [ada]) == greeted
    other = [{"name": "Ada", "since": "1843-01-01"}]
    payload: dict[str, Any] = {"spelled": {"userId": 7}, "others": other, "maybe": None}
    assert of(greet).from_payload(payload, None)[1] == greeted


def test_a_secret_of_pydantics_is_refused_for_it_would_not_come_back() -> None:
    def log_in(login: Login) -> None: ...

    with pytest.raises(InvalidInput, match="login holds a secret in Login"):
        of(log_in).to_payload((Login(password=pydantic.SecretStr("hush")),), {})


@dataclass
class Tagged:
    tags: set[str]


def test_sets_are_stored_in_one_order_for_keys_are_made_of_them() -> None:
    def paint(words: set[str], colours: frozenset[Colour], tagged: list[Tagged]) -> None: ...

    words = [f"word {number}" for number in range(50)]
    payload = of(paint).to_payload((set(words), frozenset(Colour), [Tagged(set(words))]), {})

    assert payload == {
        "words": sorted(words),
        "colours": sorted(colour.value for colour in Colour),
        "tagged": [{"tags": sorted(words)}],
    }


@pytest.mark.parametrize("members", [[[1]], [{"a": 1}]])
def test_a_set_of_lists_or_objects_is_refused_before_it_is_stored(members: list[Any]) -> None:
    def paint(words: set[Any]) -> None: ...

    with pytest.raises(InvalidInput, match="paint cannot read its arguments from JSON: unhashable"):
        of(paint).to_payload((members,), {})
    # As another client may have stored it.
    with pytest.raises(InvalidInput, match="paint cannot read its arguments from JSON: unhashable"):
        of(paint).bind(msgspec.json.encode({"words": members}).decode(), None)


@pytest.mark.parametrize("name", ["__dict__", "__init__", "__slots__", "__annotations__"])
def test_a_parameter_may_have_a_name_that_means_something_to_a_class(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def odd({name}: int) -> None: ...", scope)

    payload = of(scope["odd"]).to_payload((1,), {})

    assert payload == {name: 1}
    assert of(scope["odd"]).bind(msgspec.json.encode(payload).decode(), None) == ((), {name: 1})


def shop(
    number: int, address: Address, tags: list[str] | None = None, *, run: Run | None = None
) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "name", "sentence"),
    [
        (
            ("one", Address("x")),
            {},
            "number",
            "number does not match shop: Expected `int`, got `str`",
        ),
        ((True, Address("x")), {}, "number", "got `bool`"),
        ((1, "x"), {}, "address", "address does not match shop: Expected `object`, got `str`"),
        ((1, Address("x", ["a"])), {}, "address", "got `str` at address.zips[0]"),  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
        ((1, Address("x"), [1]), {}, "tags", "at tags[0]"),
        ((1,), {}, "address", "missing a required argument: 'address'"),
        ((1, Address("x")), {"tag": "a"}, "tag", "unexpected keyword argument 'tag'"),
        ((1, Address("x")), {"number": 2}, "number", "multiple values"),
        ((1, Address("x"), None, 4), {}, "shop", "too many positional arguments"),
        ((1, Address("x")), {"run": "mine"}, "run", "unexpected keyword argument 'run'"),
        ((1, Foreign()), {}, "address", "which JSON cannot hold"),
        ((1, {"street": {1, Foreign}}), {}, "address", "which JSON cannot hold"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], name: str, sentence: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        of(shop).to_payload(args, kwargs)

    assert caught.value.field == name
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("payload", "name", "sentence"),
    [
        ([1], "payload", "must be an object of the arguments of shop"),
        ({"number": 1}, "payload", "has no 'address', which shop needs"),
        ({"number": 1, "address": {"street": "x"}, "z": 1}, "payload", "has 'z', which shop does"),
        ({"number": 1, "address": {}}, "address", "missing required field `street`"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused(payload: Any, name: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        of(shop).from_payload(payload, None)

    assert caught.value.field == name
    assert sentence in str(caught.value)


def run_first(run: Run, number: int) -> None: ...
def run_last(number: int, *, run: Run) -> None: ...
def run_optional(number: int, run: Run | None = None) -> None: ...
def run_optional_spelled(number: int, run: Optional[Run] = None) -> None: ...  # noqa: UP045
def run_by_another_name(number: int, delivery: Run) -> None: ...
def run_by_position(number: int, run: Run, /) -> None: ...


@pytest.mark.parametrize(
    "function",
    [run_first, run_last, run_optional, run_optional_spelled, run_by_another_name, run_by_position],
)
def test_the_run_is_given_where_it_is_annotated_and_is_no_part_of_the_payload(
    function: Callable[..., Any],
) -> None:
    arguments = of(function)
    payload = arguments.to_payload((1,), {})
    positional, named = arguments.from_payload(payload, "the run")

    assert payload == {"number": 1}
    assert "the run" in (*positional, *named.values())


def takes_more(*args: int) -> None: ...
def takes_names(**kwargs: int) -> None: ...
def is_a_method(self: Any, number: int) -> None: ...
def is_foreign(thing: list[Foreign]) -> None: ...
def is_ambiguous(thing: datetime | str) -> None: ...
def is_nowhere(thing: fractions.Fraction) -> None: ...
def has_two_runs(run: Run, again: Run) -> None: ...
def has_a_wrong_default(number: int = None) -> None: ...  # type: ignore[assignment] # noqa: RUF013 # pyright: ignore[reportArgumentType]
def has_a_foreign_default(number: Any = Foreign) -> None: ...


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (takes_more, r"takes \*args: 'int': a payload has its arguments by name"),
        (takes_names, r"takes \*\*kwargs"),
        (is_a_method, "is a method, and a worker has no object"),
        (is_foreign, "annotation for thing that JSON cannot be converted to: .*Foreign"),
        (is_ambiguous, "annotation for thing that is not supported: .*more than one str-like"),
        (is_nowhere, "cannot be looked up: .*not under TYPE_CHECKING"),
        (has_two_runs, "takes two runs, run and again"),
        (has_a_wrong_default, "has a default for number that is not valid"),
        (has_a_foreign_default, "has a default for number that is not valid"),
    ],
)
def test_what_could_never_work_is_refused_at_once(
    function: Callable[..., Any], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence) as caught:
        of(function)

    assert caught.value.field == function.__name__


def returns_a_parcel() -> Parcel | Retry | Defer: ...  # type: ignore[empty-body] # pyright: ignore[reportReturnType]
def returns_nothing() -> None: ...
def returns_an_outcome() -> Retry: ...  # type: ignore[empty-body] # pyright: ignore[reportReturnType]
def returns_only_outcomes() -> Retry | Defer: ...  # type: ignore[empty-body] # pyright: ignore[reportReturnType]
def returns_foreign() -> Foreign: ...  # type: ignore[empty-body] # pyright: ignore[reportReturnType]
def says_nothing(): ...  # type: ignore[no-untyped-def] # noqa: ANN201


def test_a_result_comes_back_in_its_type() -> None:
    parcel = Parcel(Address("x"), Decimal(1))
    result = Result(returns_a_parcel, "f", stored=True)

    assert result.read(to_json(parcel, "result")) == parcel
    assert result.expected
    with pytest.raises(InvalidInput, match="result does not match the annotation"):
        result.read({"to": 1})


def test_of_some_functions_no_result_is_expected() -> None:
    none = (returns_nothing, returns_an_outcome, returns_only_outcomes)
    for function, result in [*((each, None) for each in none), (says_nothing, {"a": 1})]:
        declared = Result(function, "f", stored=True)
        assert not declared.expected
        assert declared.read(result) == result


def test_a_result_that_json_cannot_hold_matters_only_where_it_is_stored() -> None:
    assert Result(returns_foreign, "f", stored=False).read(1) == 1
    with pytest.raises(InvalidInput, match="annotation for return"):
        Result(returns_foreign, "f", stored=True)
