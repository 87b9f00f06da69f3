"""The command line in a shell: errors, exit codes, pipes, signals, completion, help."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from onefold import __version__
from onefold.cli import ExitCode, without_passwords
from onefold.cli.commands import app
from tests.cli.conftest import ONEFOLD, Run, run_apart
from tests.docs.pages import DOCS
from tests.fixtures.patience import HANG
from tests.fixtures.place import Place


def leaves(command: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Every command that runs, by its name."""
    inner: dict[str, Any] = getattr(command, "commands", {})
    if not inner:
        yield " ".join(path), command
    for name, one in inner.items():
        yield from leaves(one, *path, name)


COMMANDS = dict(leaves(get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_an_example_of_that_command(name: str) -> None:
    group = name.removesuffix(" list")
    _, title, *lines = COMMANDS[name].epilog.splitlines()

    assert title == "Examples:"
    assert lines
    for line in lines:
        assert re.match(rf"  onefold ({re.escape(name)}|{re.escape(group)})\b", line), line
        assert len(line) <= 98


def test_every_exit_code_is_in_the_reference() -> None:
    page = (DOCS / "reference/command-line.md").read_text()
    documented = re.findall(r"^\| (\d+) \|", page, re.MULTILINE)

    assert [int(code) for code in documented] == [int(code) for code in ExitCode]


def test_a_command_ends_quietly_if_its_reader_does(sqlite_url: str, tmp_path: Path) -> None:
    with Place(sqlite_url).open() as onefold:
        for number in range(500):
            onefold.enqueue("email", {"number": number, "text": "x" * 500})
    command = f"{ONEFOLD} jobs --limit 500 --json --database {sqlite_url} | head -c 10"

    done = run_apart("bash", "-c", command, folder=tmp_path)

    assert (done.stdout, done.stderr) == ('{\n  "jobs"', "")


def test_a_full_disk_is_one_sentence_also_for_the_help(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_apart(ONEFOLD, "--help", folder=tmp_path, stdout=full)

    assert done.returncode == ExitCode.FAILURE
    assert done.stderr == "onefold: The output cannot be written: No space left on device.\n"


def test_an_output_may_be_closed_and_lack_a_character(sqlite_url: str, tmp_path: Path) -> None:
    with Place(sqlite_url).open() as onefold:
        onefold.enqueue("\N{SNOWMAN}")

    command = f"{ONEFOLD} status --database {sqlite_url} >&-"
    done = run_apart("bash", "-c", command, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")

    jobs = (ONEFOLD, "jobs", "--json", "--database", sqlite_url)
    done = run_apart(*jobs, folder=tmp_path, PYTHONIOENCODING="ascii")
    assert [job["kind"] for job in json.loads(done.stdout)["jobs"]] == ["\N{SNOWMAN}"]


def test_an_interrupt_is_quiet_and_has_a_code_of_its_own(
    migrated_sqlite_url: str, tmp_path: Path
) -> None:
    command = [str(ONEFOLD), "enqueue", "email", "-", "--database", migrated_sqlite_url]
    reader, writer = os.pipe()
    os.write(writer, b'{"to": ')
    with subprocess.Popen(command, cwd=tmp_path, stdin=reader, stderr=subprocess.PIPE) as process:
        wait_until_read(reader)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=HANG)
    os.close(reader)
    os.close(writer)

    assert process.returncode == ExitCode.INTERRUPTED
    assert errors == b""


def wait_until_read(pipe: int) -> None:
    """Until the process has read the pipe, and waits for more."""
    left = array("i", [1])
    deadline = time.monotonic() + HANG
    while left[0]:
        assert time.monotonic() < deadline
        fcntl.ioctl(pipe, termios.FIONREAD, left)


def completed(run: Run, *words: str) -> list[str]:
    """What bash would offer for the last word."""
    done = run(
        _ONEFOLD_COMPLETE="complete_bash",
        COMP_WORDS=" ".join(("onefold", *words)),
        COMP_CWORD=str(len(words)),
    )
    assert not done.stderr
    return done.stdout.split()


def test_a_shell_completes_commands_and_names(
    onefold_command: Run, sqlite_url: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(
        f"from onefold import Onefold\nonefold = Onefold({sqlite_url!r})\n"
        "@onefold.job\ndef email() -> None: ...\n"
    )
    with Place(sqlite_url).open() as onefold:
        onefold.enqueue("email", queue="mail")
        onefold.enqueue("email", queue="bulk")
        onefold.schedules.save("nightly", "0 3 * * *", kind="digest")
    where = ("--database", sqlite_url)

    assert completed(onefold_command, "que") == ["queues"]
    assert completed(onefold_command, "queues", "pause", *where, "m") == ["mail"]
    assert completed(onefold_command, "jobs", "list", *where, "--queue", "b") == ["bulk"]
    assert completed(onefold_command, "schedules", "run", *where, "n") == ["nightly"]
    assert completed(onefold_command, "enqueue", "--app", "shop:onefold", "e") == ["email"]


def test_a_completion_without_a_database_offers_nothing(
    onefold_command: Run, tmp_path: Path
) -> None:
    assert completed(onefold_command, "queues", "pause", "m") == []
    assert not list(tmp_path.iterdir())


def test_the_version_and_the_help_are_printed(onefold_command: Run) -> None:
    for argument in ("version", "--version"):
        done = onefold_command(argument)

        assert (done.returncode, done.stdout) == (0, f"onefold {__version__}\n")

    done = onefold_command()

    assert done.returncode == 2
    assert "migrate" in done.stdout + done.stderr

    done = run_apart(sys.executable, "-m", "onefold", "version")

    assert (done.returncode, done.stdout) == (0, f"onefold {__version__}\n")


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
