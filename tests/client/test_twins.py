"""Both clients have the same calls, under the names that they have in-process."""

import inspect
from typing import Any

from onefold import Onefold
from onefold.client import AsyncClient, Client

GIVE_OBJECTS = {"once", "lock", "steps", "events"}
"""What they give is awaited, and not they."""

ONLY_REMOTE = {"save_queue", "delete_queue", "events"}
"""A server's queue is its only kind of queue; in-process code has hooks."""


def methods_of(kind: type) -> dict[str, Any]:
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_both_colours_have_the_same_calls() -> None:
    sync, awaited = methods_of(Client), methods_of(AsyncClient)

    assert sync.keys() == awaited.keys()
    for name, method in sync.items():
        given, other = inspect.signature(method), inspect.signature(awaited[name])
        assert given.parameters == other.parameters, name
        if name not in GIVE_OBJECTS:
            assert given.return_annotation == other.return_annotation, name
            assert inspect.iscoroutinefunction(awaited[name]), name
            assert method.__doc__ == awaited[name].__doc__, name


def test_calls_have_the_names_that_they_have_in_process() -> None:
    assert {name for name in methods_of(Client) if not hasattr(Onefold, name)} == ONLY_REMOTE
