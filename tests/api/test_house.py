"""The rules of the house that no linter holds."""

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import onefold

SOURCE = Path(onefold.__file__).parent
ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "contract"
FILES = sorted([*SOURCE.rglob("*.py"), *CONTRACT.rglob("*.py")])
OPERATIONS = sorted((SOURCE / "operations").glob("*.py"))
LONGEST = 600
TRANSACTION_CALLS = {"begin", "commit", "rollback", "transaction", "savepoint"}

Node = TypeVar("Node", bound=ast.AST)


@cache
def tree_of(path: Path) -> ast.Module:
    # A finalizer that formats a traceback parses, too, and Python 3.11 fails if that is meanwhile.
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


def at(path: Path, line: int) -> str:
    """A place as an editor opens it."""
    return f"{path.relative_to(ROOT)}:{line}"


def nodes(paths: list[Path], kind: type[Node]) -> Iterator[tuple[Path, Node]]:
    """Every node of a kind in these files."""
    for path in paths:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, kind):
                yield path, node


def test_a_file_can_be_read_at_one_sitting() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in FILES}

    assert [at(path, count) for path, count in lines.items() if count > LONGEST] == []


SHARED_NAMES = {
    "Command",  # Django finds a command by this name
    "Idempotency",  # one per framework
    "IdempotencyMiddleware",
    "Migration",  # Django finds a migration by this name
}


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and node.name[0] != "_":
                places.setdefault(node.name, []).append(at(path, node.lineno))

    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in twice.items() if name not in SHARED_NAMES} == {}


def test_an_operation_never_begins_or_ends_a_transaction() -> None:
    found = [
        f"{at(path, call.lineno)} {ast.unparse(call)}"
        for path, call in nodes(OPERATIONS, ast.Call)
        if (isinstance(call.func, ast.Attribute) and call.func.attr in TRANSACTION_CALLS)
        or (
            call.args
            and isinstance(call.args[0], ast.Constant)
            and call.args[0].value in {"begin", "commit", "rollback"}
        )
    ]

    assert found == []


def test_an_operation_never_catches_what_a_database_says() -> None:
    """In PostgreSQL the error has already killed the caller's transaction."""
    # Our own verdicts about keys; `run` passes on what went wrong to whom it concerns.
    allowed = {
        "statement": {"StopIteration", "Exception"},
        "enqueue": {"(AlreadyEnqueued, KeyReused, NeverSettled)"},
    }
    caught = [
        (path, handler.lineno, ast.unparse(handler.type) if handler.type else "everything")
        for path, handler in nodes(OPERATIONS, ast.ExceptHandler)
    ]

    found = [
        f"{at(path, line)} {name}"
        for path, line, name in caught
        if name not in allowed.get(path.stem, set())
    ]
    assert found == []


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
