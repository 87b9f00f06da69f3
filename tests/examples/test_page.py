"""The page that shows the examples shows them as they are."""

import ast
from pathlib import Path

import pytest

import examples

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
