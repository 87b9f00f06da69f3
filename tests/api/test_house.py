"""The rules of the house that no linter holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import onefold

SOURCE = Path(onefold.__file__).parent
CONTRACT = Path(__file__).parents[2] / "contract"
FILES = sorted([*SOURCE.rglob("*.py"), *CONTRACT.rglob("*.py")])
OPERATIONS = sorted((SOURCE / "operations").glob("*.py"))
LONGEST = 600

each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: "/".join(p.parts[-3:]))
each_operation = pytest.mark.parametrize("path", OPERATIONS, ids=lambda path: path.stem)


@each_file
def test_a_file_can_be_read_at_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


@each_file
def test_a_module_begins_with_what_lives_in_it(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@each_operation
def test_an_operation_never_begins_or_ends_a_transaction(path: Path) -> None:
    tree = ast.parse(path.read_text())
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    asked = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
    }

    assert called.isdisjoint({"begin", "commit", "rollback", "transaction", "savepoint"})
    assert asked.isdisjoint({"begin", "commit", "rollback"})


@each_operation
def test_an_operation_never_catches_what_a_database_says(path: Path) -> None:
    """In PostgreSQL the error has already killed the caller's transaction."""
    caught = [
        ast.unparse(handler.type) if handler.type else "everything"
        for handler in ast.walk(ast.parse(path.read_text()))
        if isinstance(handler, ast.ExceptHandler)
    ]

    # Our own verdicts about keys; `run` passes on what went wrong to whom it concerns.
    allowed = {"StopIteration", "Exception"} if path.stem == "run" else set[str]()
    allowed |= {"(AlreadyEnqueued, KeyReused, NeverSettled)"} if path.stem == "enqueue" else set()
    assert set(caught) <= allowed


def test_no_statement_begins_or_ends_a_transaction() -> None:
    words = re.compile(r"^\s*(begin|commit|rollback|savepoint|release|set)\b", re.MULTILINE)

    texts = {
        path: re.sub(r"--[^\n]*", "", path.read_text()) for path in (SOURCE / "sql").rglob("*.sql")
    }

    # The `set` of an update is no setting of the session, and the `begin` of PL/pgSQL is a block.
    found = {
        str(path.relative_to(SOURCE)): word.group(1)
        for path, text in texts.items()
        for word in words.finditer(text)
        if word.group(1) != "set" or not re.search(r"\bupdate\b", text)
        if word.group(1) != "begin" or "language plpgsql" not in text
    }
    assert found == {}


@each_file
def test_nothing_is_left_to_be_done_without_an_issue(path: Path) -> None:
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", path.read_text())


@each_file
def test_nobody_swallows_every_error(path: Path) -> None:
    for handler in ast.walk(ast.parse(path.read_text())):
        if isinstance(handler, ast.ExceptHandler):
            assert handler.type is not None
            silent = all(isinstance(node, ast.Pass) for node in handler.body)
            assert not silent, f"line {handler.lineno}"


def test_no_test_sleeps() -> None:
    """It waits for a condition with a deadline, or moves a clock of its own."""
    tests = Path(__file__).parent.parent
    allowed = {"postgres_keeper.py"}  # a process that waits for another one's end

    found = [
        str(path.relative_to(tests))
        for path in tests.rglob("*.py")
        if path.name not in allowed
        and re.search(r"\btime\.sleep\(|\bsleep\([1-9]", path.read_text())
    ]

    assert found == []
