"""Both clients have the same calls, with the names that they have in the library."""

import inspect
from typing import Any

from onefold import Onefold
from onefold.client import AsyncClient, Client

RETURN_OBJECTS = {"once", "lock", "steps", "events"}
"""Not coroutines: their objects are awaited."""

ONLY_REMOTE = {"events", "steps"}
"""The library has hooks instead of events; steps belong to the run of a handler."""

NOUNS = ("queues", "keys", "schedules", "dead", "deliveries", "statistics", "workers")


def methods_of(kind: type) -> dict[str, Any]:
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_both_clients_have_the_same_calls() -> None:
    blocking, awaited = methods_of(Client), methods_of(AsyncClient)

    assert blocking.keys() == awaited.keys()
    for name, method in blocking.items():
        given, other = inspect.signature(method), inspect.signature(awaited[name])
        assert given.parameters == other.parameters, name
        if name not in RETURN_OBJECTS:
            assert inspect.iscoroutinefunction(awaited[name]), name
            assert not inspect.iscoroutinefunction(method), name
        if name not in RETURN_OBJECTS | {"close"}:
            assert method.__doc__ == awaited[name].__doc__, name


def test_both_clients_have_the_same_nouns() -> None:
    blocking, awaited = Client("http://localhost"), AsyncClient("http://localhost")

    assert vars(blocking).keys() == vars(awaited).keys()
    assert not inspect.iscoroutinefunction(blocking.queues.pause)
    assert inspect.iscoroutinefunction(awaited.queues.pause)


def test_calls_have_the_names_that_they_have_in_the_library() -> None:
    assert {name for name in methods_of(Client) if not hasattr(Onefold, name)} == ONLY_REMOTE


def test_nouns_have_the_calls_that_they_have_in_the_library(sqlite_url: str) -> None:
    client = Client("http://localhost")
    with Onefold(sqlite_url) as onefold:
        for noun in NOUNS:
            calls = methods_of(getattr(client, noun).__class__)
            assert not [name for name in calls if not hasattr(getattr(onefold, noun), name)], noun
