"""The examples as a reader runs them, and as the page shows them."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import examples
from tests.examples.stories import STORIES, World
from tests.fixtures.patience import HANG

ROOT = Path(examples.__file__).parent.parent

TOLD = {
    "existence_check": [
        "invoices/1.txt: Invoice for order 1",
        "invoices/2.txt: Invoice for order 2",
    ],
    "upsert": ["product 1 is found as 'green tea'"],
    "third_party_key": ["order 1: charges-1", "order 1: transfers-2"],
    "lock": ["the report of 2030-01-01 has 3 lines", "the report of 2030-01-02 has 3 lines"],
    "cached_result": ["parcel 1 has labels-1", "parcel 2 has labels-2"],
    "ledger": ["account 1 has 500 cents", "account 2 has 700 cents"],
    "unique_constraint": ["user 1 has 100 points", "user 2 has 100 points"],
}


def _run(name: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    inherited = {name: os.environ[name] for name in os.environ if "ONEFOLD" not in name}
    return subprocess.run(
        [sys.executable, "-m", "examples.handlers", name],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )


def test_every_example_can_be_run() -> None:
    assert set(TOLD) == {story.example for story in STORIES}


@pytest.mark.parametrize(
    "name",
    ["ledger", *(pytest.param(name, marks=pytest.mark.prove) for name in TOLD if name != "ledger")],
)
def test_an_example_tells_of_effects_that_are_there_once(name: str, world: World) -> None:
    folder = world.folder.parent
    done = _run(name, folder, ONEFOLD_DATABASE=world.place.url)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    told = TOLD[name]
    if name == "third_party_key":  # whose turn comes first is nobody's promise
        assert [line[:-1] for line in lines[-2:]] == [line[:-1] for line in told]
    elif name == "cached_result":
        assert {line[-8:] for line in lines[-2:]} == {"labels-1", "labels-2"}
    else:
        assert lines[-len(told) :] == told
    assert " is dead" not in done.stdout


def test_an_example_uses_a_file_where_it_is_told_of_no_database(tmp_path: Path) -> None:
    done = _run("ledger", tmp_path)

    assert done.stdout.splitlines()[-2:] == TOLD["ledger"]
    assert (tmp_path / "examples.db").exists()


FOLDER = Path(examples.__file__).parent / "handlers"
PAGE = FOLDER.parent.parent / "docs/how-to/idempotent-handlers.md"
MODULES = [path for path in sorted(FOLDER.glob("*.py")) if "@onefold.job" in path.read_text()]


def _jobs(path: Path) -> list[str]:
    """The source of each declared job, its decorator included."""
    text = path.read_text()
    return [
        "\n".join(text.splitlines()[node.decorator_list[0].lineno - 1 : node.end_lineno])
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_handler_is_on_the_page_as_it_is(path: Path) -> None:
    shown = PAGE.read_text()

    assert [job for job in _jobs(path) if job not in shown] == []
