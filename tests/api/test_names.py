"""What is public: the names that can be imported, and what importing them costs."""

import inspect
import subprocess
import sys
import types

import pytest

import onefold
import onefold.claims
import onefold.events
from onefold import errors

PUBLIC = pytest.mark.parametrize(
    "module", [onefold, onefold.claims, onefold.events], ids=lambda m: m.__name__
)


@PUBLIC
def test_all_is_sorted_and_says_nothing_twice(module: types.ModuleType) -> None:
    names: list[str] = module.__all__

    assert names == sorted(set(names))


@PUBLIC
def test_every_public_name_is_in_all(module: types.ModuleType) -> None:
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }

    assert public == set(module.__all__)


def test_every_error_is_public() -> None:
    found = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.OnefoldError)
    }

    assert found <= set(onefold.__all__)


@PUBLIC
def test_every_public_name_is_documented(module: types.ModuleType) -> None:
    undocumented = [
        name
        for name in module.__all__
        if inspect.isclass(getattr(module, name)) and not inspect.getdoc(getattr(module, name))
    ]

    assert undocumented == []


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has imported after running some code."""
    listing = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\n{listing}"], capture_output=True, text=True, check=True
    )
    return set(found.stdout.split())


def foreign(names: set[str]) -> set[str]:
    return {name for name in names if name not in sys.stdlib_module_names}


def test_importing_it_takes_the_standard_library_and_msgspec() -> None:
    # msgspec takes typing_extensions where it is installed, as it is here for the tests.
    theirs = modules_after("import msgspec")
    imported = modules_after("import onefold, onefold.claims, onefold.events")

    assert foreign(imported - theirs) == {"onefold"}


def test_importing_it_takes_no_driver() -> None:
    imported = modules_after("import onefold")

    assert imported.isdisjoint({"sqlite3", "psycopg", "psycopg_pool", "asyncpg", "typer", "rich"})
