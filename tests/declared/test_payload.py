"""One parameter takes the whole payload; members that are no arguments can be dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

import onefold as package
from onefold import ConflictingOptions, InvalidInput, Payload, Run, Unique
from onefold.jobs.arguments import Arguments
from onefold.model.unique import Unique as Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.declared.stage import Stage


class Event(msgspec.Struct):
    id: str
    amount: int = 0


class Renamed(msgspec.Struct, rename="camel"):
    user_id: int


class Tagged(msgspec.Struct, tag=True):
    id: str


@dataclass
class Row:
    id: str
    amount: int = 0


class Members(TypedDict):
    id: str
    amount: int


class Model(pydantic.BaseModel):
    id: str
    amount: int = 0


def whole(event: Payload) -> Any:
    return event


def with_run(run: Run, event: Payload) -> Any: ...


def optional(event: Payload | None = None) -> Any: ...


def positional(event: Payload, /) -> Any: ...


def by_module(event: package.Payload) -> Any: ...


def of_struct(event: Annotated[Event, Payload]) -> Any: ...


def of_dataclass(event: Annotated[Row, Payload]) -> Any: ...


def of_members(event: Annotated[Members, Payload]) -> Any: ...


def of_model(event: Annotated[Model, Payload]) -> Any: ...


def of_list(events: Annotated[list[Event], Payload]) -> Any: ...


def read(function: Callable[..., Any], payload: Any) -> Any:
    args, kwargs = Arguments(function, function.__name__).from_payload(payload, "the run")
    kwargs.pop("run", None)
    (value,) = (*args, *kwargs.values())
    return value


@pytest.mark.parametrize(
    "payload", [{"id": "evt_1"}, {}, [1, {"a": None}], "text", 7, 0.5, True, None]
)
@pytest.mark.parametrize("function", [whole, with_run, optional, positional, by_module])
def test_any_json_arrives_as_it_is(function: Callable[..., Any], payload: Any) -> None:
    assert read(function, payload) == payload
    assert Arguments(function, "handle").to_payload((payload,), {}) == payload


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (of_struct, Event("evt_1", 5)),
        (of_dataclass, Row("evt_1", 5)),
        (of_members, {"id": "evt_1", "amount": 5}),
        (of_model, Model(id="evt_1", amount=5)),
    ],
)
def test_it_is_converted_by_its_type(function: Callable[..., Any], value: Any) -> None:
    payload = {"id": "evt_1", "amount": 5}
    assert read(function, payload) == value
    assert Arguments(function, "handle").to_payload((), {"event": value}) == payload
    for bad in ({"id": 7, "amount": 5}, [payload], "text"):
        with pytest.raises(InvalidInput, match="event does not match"):
            read(function, bad)


def test_a_list_of_structs_is_a_payload() -> None:
    assert read(of_list, [{"id": "a"}, {"id": "b"}]) == [Event("a"), Event("b")]
    assert Arguments(of_list, "handle").to_payload(([Event("a")],), {}) == [
        {"id": "a", "amount": 0}
    ]


def test_it_may_be_imported_for_checkers_only() -> None:
    scope: dict[str, Any] = {}
    exec("def handle(event: Payload) -> None: ...", scope)  # Its name is text, as in this module.
    assert Arguments(scope["handle"], "handle").whole == "event"


@pytest.mark.parametrize("name", ["Payload", "Run"])
def test_a_class_of_the_same_name_is_an_argument_like_any_other(name: str) -> None:
    scope: dict[str, Any] = {name: Event}
    exec(f"def handle(event: {name}) -> None: ...", scope)  # Its name is text, as in this module.

    assert read(scope["handle"], {"event": {"id": "a"}}) == Event("a")


def test_no_other_argument_goes_with_it() -> None:
    def handle(event: Payload, user_id: int = 0) -> Any: ...

    with pytest.raises(InvalidInput, match="whole payload as event, so it cannot take user_id"):
        Arguments(handle, "handle")
    with pytest.raises(ConflictingOptions, match="extra is for arguments by name"):
        Arguments(whole, "whole", ignores_extra=True)


def test_run_without_an_annotation_is_refused() -> None:
    def own(run: int) -> Any: ...

    scope: dict[str, Any] = {}
    exec("def handle(run, order_id: int) -> None: ...", scope)
    with pytest.raises(InvalidInput, match=r"Write run: Run \(from onefold import Run\)"):
        Arguments(scope["handle"], "handle")
    assert Arguments(own, "own").names == ("run",), "with a type it is an argument"


def test_extra_members_are_dropped_where_that_is_said() -> None:
    def handle(user_id: int, template: str = "welcome") -> Any: ...

    strict, lenient = Arguments(handle, "h"), Arguments(handle, "h", ignores_extra=True)
    payload = {"user_id": 1, "sent_by": "ada"}
    with pytest.raises(InvalidInput, match="has 'sent_by', which h does not take"):
        strict.from_payload(payload, None)
    assert lenient.from_payload(payload, None) == ((), {"user_id": 1})
    with pytest.raises(InvalidInput, match="has no 'user_id', which h needs"):
        lenient.from_payload({"sent_by": "ada"}, None)
    with pytest.raises(InvalidInput, match="sent_by"):
        lenient.to_payload((1,), {"sent_by": "ada"})


def test_extra_is_one_of_two_words(stage: Stage) -> None:
    extra: Any = "drop"
    with pytest.raises(InvalidInput, match='must be "forbid" or "ignore"'):
        stage.onefold.job(extra=extra)(whole)


@pytest.mark.parametrize(
    ("function", "field", "known"),
    [
        (of_struct, "usrId", "id, amount"),
        (of_dataclass, "usrId", "id, amount"),
        (of_members, "usrId.name", "amount, id"),
    ],
)
def test_a_key_of_no_member_is_refused_where_the_type_is_known(
    stage: Stage, function: Callable[..., Any], field: str, known: str
) -> None:
    with pytest.raises(InvalidInput, match=f"takes {known} for a payload"):
        stage.onefold.job(unique=Unique(field))(function)


def test_members_are_known_by_the_names_that_are_written() -> None:
    def renamed(event: Annotated[Renamed, Payload]) -> Any: ...

    def tagged(event: Annotated[Tagged, Payload]) -> Any: ...

    assert Arguments(renamed, "h").members == ("userId",)
    assert Arguments(tagged, "h").members is None
    assert Arguments(whole, "h").members is None
    assert Arguments(of_list, "h").members is None


async def test_one_event_is_one_job(stage: Stage) -> None:
    job = stage.onefold.job(kind="stripe.process", unique=Unique("id"))(whole)
    event = {"id": "evt_1", "type": "charge"}
    first = await stage.enqueue(job, event)
    again = await stage.enqueue(job, {**event, "type": "refund"})
    other = await stage.enqueue(job, {"id": "evt_2"})
    assert (again.id, again.duplicate, again.mismatch) == (first.id, True, True)
    assert not other.duplicate
    assert job.unique_key(event) == Rule("id").key("stripe.process", event)
    assert await stage.work() == [event, {"id": "evt_2"}]


async def test_null_is_a_payload(stage: Stage) -> None:
    job = stage.onefold.job(whole)
    await stage.enqueue(job, None)
    (answer,) = await stage.enqueue_many(job, [job.call([1])])
    assert (await stage.get(answer)).payload == [1]
    assert await stage.work() == [None, [1]]
