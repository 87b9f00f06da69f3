"""Sync and async live on one object: every call has its a-twin, with the same signature."""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import onefold as package
from onefold import Onefold, Tenant, Within
from onefold.app.api_keys import ApiKeys
from onefold.app.context import Override
from onefold.app.dead import DeadJobs
from onefold.app.deliveries import Deliveries
from onefold.app.keys import Keys
from onefold.app.queues import Queues
from onefold.app.schedules import Schedules
from onefold.app.statistics import StatisticsCalls
from onefold.app.workers import Workers
from onefold.effects.lock import Lock
from onefold.effects.once import OnceContext

SOURCE = Path(package.__file__).parent
RECEIVERS = {"onefold", "_onefold", "tenant", "calls", "context", "_context", "within()"}

NOUNS = [ApiKeys, DeadJobs, Deliveries, Keys, Queues, Schedules, StatisticsCalls, Workers]
CLASSES = [*NOUNS, Lock, Tenant, Within, Onefold]

# They touch no database, so there is nothing to await.
ONE_COLOUR = {"cron", "declare", "subscribe", "tenant", "within", "check", "derived"}
# The one blocks for good, the other gives an object that is entered.
WORKERS = {"run_worker", "worker"}
# They return an object for `with` and for `async with`.
GIVE_OBJECTS = {"once": OnceContext, "lock": Lock, "override": Override}
MOST = 45
"""Public names of `Onefold`."""

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
def test_every_call_has_a_twin_with_the_same_signature_that_documents_it(kind: type) -> None:
    methods, pairs = methods_of(kind), pairs_of(kind)
    paired = {twin.__name__ for _, _, twin in pairs} | {name for name, _, _ in pairs}
    alone = methods.keys() - paired

    assert alone <= ONE_COLOUR | WORKERS | set(GIVE_OBJECTS)
    assert not [name for name in alone if inspect.iscoroutinefunction(methods[name])]
    for name, method, twin in pairs:
        ours, theirs = inspect.signature(method), inspect.signature(twin)
        assert ours.parameters == theirs.parameters, name
        assert ours.return_annotation == theirs.return_annotation, name
        assert not inspect.iscoroutinefunction(method), name
        assert inspect.iscoroutinefunction(twin), name
        assert inspect.getdoc(method), name
        assert (inspect.getdoc(twin) or "").startswith(f"`{name}`"), name


def test_once_lock_and_override_give_one_object_for_both_colours() -> None:
    assert {
        name: inspect.signature(getattr(Onefold, name)).return_annotation.partition("[")[0]
        for name in GIVE_OBJECTS
    } == {name: kind.__name__ for name, kind in GIVE_OBJECTS.items()}


def test_the_names_of_onefold_can_be_learned(tmp_path: Path) -> None:
    with Onefold(f"sqlite:///{tmp_path}/app.db") as onefold:
        names = sorted(name for name in dir(onefold) if not name.startswith("_"))

    assert len(names) <= MOST, names


def test_nothing_outside_of_app_uses_a_private_attribute_of_it() -> None:
    """Modules share what they need by `onefold.context`."""
    own = {
        node.attr
        for path in (SOURCE / "app").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    used = {
        f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(node)}"
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "app"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in own
        and ast.unparse(node.value).rpartition(".")[2] in RECEIVERS
    }

    assert used == set()


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
