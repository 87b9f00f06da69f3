import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onefold import InvalidInput, Onefold, UsageError
from onefold.cli.app_loader import load_app

SHOP = """
from onefold import Onefold
class Parts:
    onefold = Onefold("sqlite:///shop.db")
parts = Parts()
onefold = parts.onefold
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The present folder, with modules that nobody else imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    before = set(sys.modules)
    (tmp_path / "loaded_shop.py").write_text(SHOP)
    (tmp_path / "broken_shop.py").write_text("import os\nos.environ['NO SUCH VARIABLE']\n")
    (tmp_path / "needy_shop.py").write_text("import no_such_module\n")
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("target", ["loaded_shop:onefold", "loaded_shop:parts.onefold"])
def test_an_application_is_found_in_the_present_folder(target: str) -> None:
    assert isinstance(load_app(target), Onefold)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("", "must be like module:app"),
        ("loaded_shop", "must be like module:app"),
        ("loaded_shop:", "must be like module:app"),
        (":onefold", "must be like module:app"),
        ("nowhere:onefold", "no module 'nowhere'"),
        ("loaded_shop.nowhere:onefold", "no module 'loaded_shop.nowhere'"),
        ("loaded_shop:nothing", "the module 'loaded_shop' has no 'nothing'"),
        ("loaded_shop:parts.nothing", "has no 'nothing'"),
        ("loaded_shop:parts", "must be an Onefold object, but is of type Parts"),
    ],
)
def test_what_is_not_there_is_named(target: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        load_app(target)


@pytest.mark.parametrize(
    ("module", "said"), [("broken_shop", "NO SUCH VARIABLE"), ("needy_shop", "no_such_module")]
)
def test_a_module_that_fails_is_told_from_one_that_is_not_there(
    module: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UsageError, match=f"{module}' cannot be imported: .*{said}"):
        load_app(f"{module}:onefold")

    assert "Traceback" in caplog.text


def test_the_traceback_of_a_module_has_no_password(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "open_shop.py").write_text(SHOP.replace("sqlite:///shop.db", "mysql://u:hush@h/db"))

    with pytest.raises(UsageError):
        load_app("open_shop:onefold")

    assert 'Onefold("mysql://u:***@h/db")' in caplog.text
    assert "hush" not in caplog.text
