"""The reference is complete: every part has a description and an example that is true."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from onefold.server.app import ROUTES
from onefold.server.openapi import TAGS, document, problems_of
from onefold.server.problems import KINDS
from onefold.server.routing import Route
from onefold.web import problems as web_problems

# As a client has it.
DOCUMENT: dict[str, Any] = json.loads(json.dumps(document(ROUTES, version="1")))
COMPONENTS = DOCUMENT["components"]
BY_ID = {
    operation["operationId"]: operation
    for methods in (*DOCUMENT["paths"].values(), *DOCUMENT["webhooks"].values())
    for operation in methods.values()
}


def members() -> Iterator[tuple[str, Any]]:
    """Every member of every schema, those within a member included."""
    waiting = [(name, schema) for name, schema in COMPONENTS["schemas"].items()]
    while waiting:
        name, schema = waiting.pop()
        for member, about in schema.get("properties", {}).items():
            yield f"{name}.{member}", about
            waiting.append((f"{name}.{member}", about))
        waiting += [(name, each) for each in schema.get("anyOf", ())]


def is_valid(schema: Any, value: Any) -> bool:
    whole = {"components": COMPONENTS, "allOf": [schema]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True).is_valid(value)


def test_every_member_is_described_and_has_an_example_that_its_schema_accepts() -> None:
    # Those with a reference have members with examples.
    plain = [(name, about) for name, about in members() if "$ref" not in json.dumps(about)]

    assert len(plain) > 200
    assert not [name for name, about in members() if not about.get("description")]
    assert not [name for name, about in plain if not about.get("examples")]
    assert not [
        (name, value)
        for name, about in plain
        for value in about["examples"]
        if not is_valid(about, value)
    ]


def test_descriptions_are_sentences_about_json() -> None:
    texts = [about["description"] for _, about in members()]
    texts += [one["description"] for each in BY_ID.values() for one in each["parameters"]]

    assert not [text for text in texts if not text.endswith((".", ":"))]
    assert not [text for text in texts if {"None", "True", "False"} & set(text.split())]
    used = [operation["tags"][0] for operation in BY_ID.values()]
    assert list(dict.fromkeys(used)) == list(TAGS), "the groups are in the order of the tags"


@pytest.mark.parametrize("name", BY_ID)
def test_every_part_of_a_route_is_described_and_has_an_example(name: str) -> None:
    operation = BY_ID[name]

    assert operation["summary"]
    assert operation["description"]
    assert [tag for tag in operation["tags"] if tag in TAGS] == operation["tags"] != []
    for parameter in operation["parameters"]:
        assert parameter["description"], parameter
        schema = parameter["schema"]
        shown = [parameter["example"]] if "example" in parameter else schema["examples"]
        assert shown, parameter
        assert all(is_valid(schema, value) for value in shown), parameter
    bodies = [operation["requestBody"]] if "requestBody" in operation else []
    for part in (*bodies, *operation["responses"].values()):
        assert part["description"], part
        for content in part.get("content", {}).values():
            assert content["examples"], part
            for example in content["examples"].values():
                shared = COMPONENTS["examples"].get(example.get("$ref", "").rpartition("/")[2])
                assert is_valid(content["schema"], (shared or example)["value"]), example


@pytest.mark.parametrize("route", ROUTES, ids=[route.name for route in ROUTES])
def test_every_problem_of_a_route_is_listed_with_its_code(route: Route) -> None:
    responses = BY_ID[route.name]["responses"]

    for status, kinds in problems_of(route).items():
        codes = responses[str(status)]["content"]["application/problem+json"]["examples"]
        assert list(codes) == [kind.code for kind in kinds]
        assert all(f"`{code}`" in responses[str(status)]["description"] for code in codes)
    known = {kind.code for kind in (*KINDS, *web_problems.KINDS)}
    assert {kind.code for kinds in problems_of(route).values() for kind in kinds} <= known
