"""Every fenced `python` and `console` example of README and docs runs, page by page.

1. The examples of a page run in order, in one namespace and one empty folder.
2. `dsn` is the URL of an empty PostgreSQL database: a name in Python, a variable in a console. It
   is also in DATABASE_URL, where an application reads it.
3. If a page uses Django, the default database of its project is also `dsn`.
4. A console shows `$ onefold …` and its output; `...` matches any text. Commands that the tests
   do not run (pip, make) are fenced as `sh`.
5. An example that begins with `# name.py` is written to that file, so later ones can import it.
"""

import doctest
import gc
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections
from sybil import Document, Example
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from onefold import Onefold
from onefold.django import get_onefold
from onefold.testing.plugin import new_database
from tests.docs.pages import PAGES, ROOT, blocks, name_of
from tests.fixtures.colours import Store
from tests.fixtures.django_connections import add_database, database_settings, remove_database
from tests.fixtures.patience import LOCK


@pytest.fixture
def dsn(postgres_url: str) -> Iterator[str]:
    """The URL of a new database for one test."""
    with new_database(postgres_url) as url:
        yield url


@pytest.fixture
def django_project(dsn: str) -> Iterator[None]:
    """A Django project whose default database is `dsn`."""
    default = connections.settings["default"]
    add_database(database_settings(Store("postgres", dsn)), alias="default")
    get_onefold.cache_clear()
    yield
    get_onefold.cache_clear()
    remove_database("default")
    connections.settings["default"] = default


def evaluate_console(example: Example) -> None:
    """Run the commands of a console and compare their output."""
    steps = example.parsed.split("$ ")
    assert not steps[0].strip(), "a console example begins with a command"
    for step in steps[1:]:
        command, _, wanted = step.partition("\n")
        done = subprocess.run(
            command,
            shell=True,
            env={
                **os.environ,
                "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
                "COLUMNS": "100",
                "dsn": example.namespace.get("dsn", ""),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        got = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{got}"
        same = doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS)
        assert same or not wanted.strip(), f"{command}\nshould print\n{wanted}\nbut prints\n{got}"


def write_files(page: Path, folder: Path) -> list[str]:
    """Write the files that a page shows; return the names of their modules."""
    modules: list[str] = []
    for text in blocks(page, "python"):
        if named := re.match(r"# (\w+)\.py\n", text):
            modules.append(named[1])
            (folder / f"{named[1]}.py").write_text(text)
    return modules


# Pages that kill workers, or try every crash.
LONG = {"prove-idempotency", "test-your-application", "kill-it"}
RUN = [pytest.param(page, marks=pytest.mark.prove) if page.stem in LONG else page for page in PAGES]
PARSERS = (PythonCodeBlockParser(), CodeBlockParser("console", evaluate_console))


# A page with many commands starts many interpreters: this only ends a hang.
@pytest.mark.timeout(1800)
# Short examples do not close connections, and Python 3.13 warns about that.
@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
# The test client of Starlette prefers another version of httpx.
@pytest.mark.filterwarnings("ignore:Using .httpx. with .starlette.testclient. is deprecated")
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_examples_of_a_page_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv("ONEFOLD_DATABASE", raising=False)
    # No example is about a locked file, and a slow disk may take seconds for a commit.
    assert Onefold.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(Onefold.__init__.__kwdefaults__, "busy_timeout", LOCK)
    for module in write_files(page, tmp_path):
        sys.modules.pop(module, None)
    document = Document.parse(str(page), *PARSERS)
    if "dsn" in page.read_text():
        document.namespace["dsn"] = dsn = request.getfixturevalue("dsn")
        monkeypatch.setenv("DATABASE_URL", dsn)
    if "django" in page.read_text():
        request.getfixturevalue("django_project")

    for example in document.examples():
        example.evaluate()
    # Otherwise a later test would report the warning.
    document.namespace.clear()
    gc.collect()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_example_takes_a_token_for_a_principal(page: Path) -> None:
    """A token is secret, and a client with a renewed token would lose its keys."""
    for text in blocks(page, "python"):
        assert not re.search(r"return authorization\b", text)
        assert not re.search(r"principal=lambda \w+: \w+\.headers\[.Authorization.\]", text)


@pytest.mark.prove
def test_the_contract_suite_of_the_how_to_examines_a_database(tmp_path: Path) -> None:
    page = ROOT / "docs/how-to/test-with-the-contract-suite.md"
    (example,) = (text for text in blocks(page, "python") if text.startswith("# test_contract.py"))
    (tmp_path / "test_contract.py").write_text(example)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "duplicate"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


# `py`, `js` and `go` are code of other systems; the files of a deployment are tested on their own.
NOT_RUN = {
    "",
    "sh",
    "sql",
    "text",
    "mermaid",
    "py",
    "js",
    "go",
    "ini",
    "yaml",
    "dockerfile",
    "nginx",
}


def test_only_what_runs_is_called_python_or_console() -> None:
    for page in PAGES:
        fences = {
            line.removeprefix("```")
            for line in page.read_text().splitlines()
            if line.startswith("```")
        }

        assert fences <= {"python", "console", *NOT_RUN}, page


def test_every_make_target_that_is_mentioned_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for block in blocks(page, "sh") + blocks(page, "console"):
            for line in block.splitlines():
                if line.startswith("make "):
                    target = line.split()[1]
                    assert target.startswith("#") or f"\n{target}:" in makefile, line


def test_the_readme_is_short_and_opens_with_two_commands_and_ten_lines_of_code() -> None:
    text = (ROOT / "README.md").read_text()
    code = blocks(ROOT / "README.md", "python")[0]

    assert len(text.splitlines()) <= 120
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    assert text.index("make run") < text.index("make test") < text.index("```python")
    assert text.index("```python") < text.index("Celery") < text.index("\n## ")
