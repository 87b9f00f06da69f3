import sys
from pathlib import Path

import pytest

from onefold import __version__
from onefold.cli import without_passwords
from tests.cli.conftest import Run, run_apart


def test_the_version_is_printed_by_a_command_and_by_an_option(onefold_command: Run) -> None:
    for argument in ("version", "--version"):
        done = onefold_command(argument)

        assert (done.returncode, done.stdout) == (0, f"onefold {__version__}\n")


def test_onefold_alone_prints_its_help(onefold_command: Run) -> None:
    done = onefold_command()

    assert done.returncode == 2
    assert "migrate" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("part", "extra", "command"),
    [
        ("typer", "cli", "version"),
        ("rich", "cli", "version"),
        ("textual", "top", "top"),
        ("starlette", "server", "serve"),
        pytest.param("granian", "server", "serve", marks=pytest.mark.prove),
        pytest.param("aiohttp", "server", "serve", marks=pytest.mark.prove),
    ],
)
def test_without_its_parts_a_command_says_what_to_install(
    part: str, extra: str, command: str, migrated_sqlite_url: str, tmp_path: Path
) -> None:
    url = migrated_sqlite_url if command == "top" else "sqlite:///new.db"
    program = f"import sys; sys.modules[{part!r}] = None\nfrom onefold.cli import main; main()"

    done = run_apart(sys.executable, "-c", program, command, "--database", url, folder=tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith("onefold: ")
    assert f"pip install 'onefold[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new.db").exists()


def test_an_error_of_the_caller_is_a_sentence_and_status_2(onefold_command: Run) -> None:
    for arguments in (
        ("migrate", "--database", "mysql://localhost/app"),
        ("migrate", "--database", "mysql://localhost/app", "--sql"),
        ("migrate", "--database", "sqlite:///:memory:"),
        ("migrate", "--database", "sqlite:///app.db", "--schema", "Not A Name"),
        ("migrate", "--database", "sqlite:///app.db", "--schema", "Not A Name", "--sql"),
    ):
        done = onefold_command(*arguments)

        assert done.returncode == 2, arguments
        assert done.stderr.startswith("onefold: ")
        assert done.stderr.count("\n") == 1
        assert not done.stdout


def test_an_error_of_the_world_is_a_sentence_and_status_1(onefold_command: Run) -> None:
    away = "postgresql://nobody@127.0.0.1:1/nowhere"
    for command, url in (
        ("migrate", "sqlite:///no/such/folder/app.db"),
        *((command, away) for command in ("migrate", "status", "workers", "top")),
    ):
        done = onefold_command(command, "--database", url)

        assert (done.returncode, done.stdout) == (1, ""), command
        assert done.stderr.startswith("onefold: ")
        assert "Traceback" not in done.stderr


def test_the_package_is_the_command_line() -> None:
    done = run_apart(sys.executable, "-m", "onefold", "version")

    assert (done.returncode, done.stdout) == (0, f"onefold {__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "postgresql://app:hush@db/orders"),
        ("worker", "postgresql://app:hush@db/orders"),
        ("migrate", "--database", "mysql://app:hush@db/orders", "--sql"),
        ("worker", "open_shop:onefold"),
    ],
)
def test_a_password_in_the_wrong_place_is_not_repeated(
    onefold_command: Run, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    line = "onefold = Onefold('mysql://app:hush@db/orders')"
    (tmp_path / "open_shop.py").write_text(f"from onefold import Onefold\n{line}\n")
    done = onefold_command(*arguments)

    assert done.returncode == 2
    assert done.stderr
    assert "hush" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("got 'postgresql://app:hush@db/orders'", "got 'postgresql://app:***@db/orders'"),
        ("postgresql://app:hu/s@h hush@db/orders", "postgresql://app:***@db/orders"),
        ("postgresql://:hush@h1,h2/orders", "postgresql://:***@h1,h2/orders"),
        (
            "postgresql://db/orders?password=hush&user=app",
            "postgresql://db/orders?password=***&user=app",
        ),
        ("postgresql://db/orders?sslpassword=h%75sh", "postgresql://db/orders?sslpassword=***"),
        ("host=db password='hush now' user=app", "host=db password=*** user=app"),
        ("host=db PASSWORD = hush user=app", "host=db PASSWORD = *** user=app"),
        ("http://127.0.0.1:7890/v1/docs", "http://127.0.0.1:7890/v1/docs"),
        (
            "sqlite:///app.db or postgresql://user@host/name",
            "sqlite:///app.db or postgresql://user@host/name",
        ),
    ],
)
def test_a_message_is_shown_without_passwords(text: str, shown: str) -> None:
    assert without_passwords(text) == shown
