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


@pytest.mark.parametrize(
    "module", [onefold, onefold.claims, onefold.events], ids=lambda m: m.__name__
)
def test_every_public_name_is_in_all_once_in_order_and_documented(module: types.ModuleType) -> None:
    public = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }

    assert list(module.__all__) == sorted(public)
    assert [n for n, each in public.items() if inspect.isclass(each) and not each.__doc__] == []


def test_every_error_is_public() -> None:
    found = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.OnefoldError)
    }

    assert found <= set(onefold.__all__)


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has imported after running some code."""
    listing = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\n{listing}"], capture_output=True, text=True, check=True
    )
    return set(found.stdout.split())


def test_importing_it_takes_the_standard_library_and_msgspec_and_no_driver() -> None:
    # msgspec takes typing_extensions where it is installed, as it is here for the tests.
    theirs = modules_after("import msgspec")
    imported = modules_after("import onefold, onefold.claims, onefold.events")

    assert (imported - theirs) - sys.stdlib_module_names == {"onefold"}
    assert "sqlite3" not in imported
