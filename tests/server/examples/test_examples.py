"""The examples of the OpenAPI document: requests as they stand, and the responses to them."""

from typing import Any

from onefold.model.json_text import is_array, is_object
from onefold.server.app import ROUTES
from onefold.server.openapi import EXAMPLES
from tests.fixtures.colours import Clock
from tests.fixtures.served import Api
from tests.server.examples.walk import walk

OPERATIONS: dict[str, Any] = EXAMPLES["operations"]


def test_every_route_has_examples_and_no_other() -> None:
    assert set(OPERATIONS) == {"pushJob", *(route.name for route in ROUTES)}
    assert {name for name, example in OPERATIONS.items() if "bodies" in example} == {
        "pushJob",
        *(route.name for route in ROUTES if route.body is not None),
    }


async def test_the_examples_are_accepted_and_answered_as_the_document_says(
    api: Api, clock: Clock
) -> None:
    seen = await walk(api, clock)

    shown = {name: example["answers"] for name, example in OPERATIONS.items() if name != "pushJob"}
    assert {name: shape(example) for name, example in shown.items()} == {
        name: shape(found["answers"]) for name, found in seen.items()
    }


def shape(value: Any) -> Any:
    """The names and types of a value, without what differs from run to run."""
    if is_object(value):
        return {name: shape(member) for name, member in value.items()}
    if is_array(value):
        return [shape(item) for item in value]
    return "number" if isinstance(value, int | float) else type(value).__name__
