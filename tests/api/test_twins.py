"""Sync and async live on one object: every call has its a-twin, with the same signature."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from onefold import Onefold, Tenant, Within
from onefold.calls.claims import ClaimCalls
from onefold.calls.engine import Engine
from onefold.calls.jobs import JobCalls
from onefold.calls.lock import AsyncLock, Lock
from onefold.calls.once import AsyncOnce, Once
from onefold.calls.schedules import ScheduleCalls

CLASSES = [JobCalls, ClaimCalls, ScheduleCalls, Engine, Tenant, Within, Onefold]

# They touch no database, so there is nothing to await.
ONE_COLOUR = {"cron", "queue", "subscribe", "tenant", "within"}
# The one blocks for good, the other gives an object that is entered.
WORKERS = {"run_worker", "worker"}
# They give an object that is awaited, and are not awaited themselves.
GIVE_OBJECTS = {"once": Once, "aonce": AsyncOnce, "lock": Lock, "alock": AsyncLock}

each_class = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)


def methods_of(kind: type) -> dict[str, Any]:
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def pairs_of(kind: type) -> list[tuple[str, Any, Any]]:
    methods = methods_of(kind)
    return [
        (name, method, methods[f"a{name}"])
        for name, method in methods.items()
        if f"a{name}" in methods
    ]


@each_class
def test_every_sync_call_has_a_twin(kind: type) -> None:
    methods = methods_of(kind)
    twins = {twin.__name__ for _, _, twin in pairs_of(kind)}

    alone = {name for name in methods if name not in twins and f"a{name}" not in methods}

    assert alone <= ONE_COLOUR | WORKERS


@each_class
def test_every_async_call_has_a_twin(kind: type) -> None:
    methods = methods_of(kind)
    coroutines = {name for name, method in methods.items() if inspect.iscoroutinefunction(method)}

    assert {name for name in coroutines if name[0] != "a" or name[1:] not in methods} == set()


@each_class
def test_twins_have_the_same_signature(kind: type) -> None:
    for name, method, twin in pairs_of(kind):
        ours, theirs = inspect.signature(method), inspect.signature(twin)
        assert ours.parameters == theirs.parameters, name
        if name not in GIVE_OBJECTS:
            assert ours.return_annotation == theirs.return_annotation, name


@each_class
def test_one_twin_blocks_and_the_other_is_awaited(kind: type) -> None:
    for name, method, twin in pairs_of(kind):
        assert not inspect.iscoroutinefunction(method), name
        assert inspect.iscoroutinefunction(twin) == (name not in GIVE_OBJECTS), name


@each_class
def test_a_twin_is_documented_by_the_other(kind: type) -> None:
    for name, method, twin in pairs_of(kind):
        assert inspect.getdoc(method), name
        assert (inspect.getdoc(twin) or "").startswith(f"`{name}`"), name


def test_once_and_lock_give_an_object_of_their_colour() -> None:
    assert {
        name: inspect.signature(getattr(ClaimCalls, name)).return_annotation.partition("[")[0]
        for name in GIVE_OBJECTS
    } == {name: kind.__name__ for name, kind in GIVE_OBJECTS.items()}


@pytest.mark.parametrize(("sync", "other"), [(Once, AsyncOnce), (Lock, AsyncLock)])
def test_objects_of_both_colours_have_the_same_methods(sync: type, other: type) -> None:
    ours, theirs = methods_of(sync), methods_of(other)

    assert set(ours) == set(theirs)
    for name, method in ours.items():
        assert inspect.signature(method).parameters == inspect.signature(theirs[name]).parameters, (
            name
        )


@pytest.mark.parametrize(
    ("kind", "sync", "awaited"),
    [
        (Onefold, "__enter__", "__aenter__"),
        (Onefold, "__exit__", "__aexit__"),
    ],
)
def test_it_is_a_context_manager_of_both_colours(kind: type, sync: str, awaited: str) -> None:
    assert inspect.iscoroutinefunction(getattr(kind, awaited))
    assert not inspect.iscoroutinefunction(getattr(kind, sync))


@each_class
def test_options_are_keyword_only(kind: type) -> None:
    """After the second argument, a bare value would say nothing to a reader."""
    for name, method in methods_of(kind).items():
        positional = [
            parameter
            for parameter in inspect.signature(method).parameters.values()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.name != "self"
        ]
        # An operator's settle: scope, key and result.
        most = 3 if name.endswith("force_settle") else 2
        assert len(positional) <= most, name
