"""The pages of the documentation, and their parts."""

import importlib.util
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """The path of a page from the root."""
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The text of a page without fenced blocks."""
    return _FENCE.sub("", page.read_text())


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language, without the fences."""
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, page.read_text(), re.MULTILINE | re.DOTALL)


def script(name: str) -> Any:
    """A script of tools/ as a module; the folder is not a package."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
