"""`onefold status` and `onefold workers`: everything at a glance."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from onefold import Onefold
from onefold.model.ids import new_id
from onefold.model.queue import QueueSettings
from onefold.operations import workers
from onefold.operations.workers import WorkerRow
from tests.cli.conftest import ONEFOLD, Operate, read
from tests.cli.test_operators import MINUTE, bury
from tests.fixtures.place import Place


def fill(onefold: Onefold) -> None:
    """A queue with every kind of job, and a suppressed duplicate."""
    bury(onefold, "digest")
    onefold.enqueue("email", queue="mail")
    (failing,) = onefold.deliveries.take(["mail"], worker="w", lease=MINUTE)
    onefold.deliveries.retry([failing], error=TimeoutError("slow"), after=MINUTE)
    onefold.enqueue("email", queue="mail")
    onefold.deliveries.take(["mail"], worker="w", lease=MINUTE)
    for _ in range(2):
        onefold.enqueue("email", queue="mail", unique_key="welcome:42")
    onefold.queues.pause("mail")


def test_everything_is_seen_at_a_glance(operate: Operate, onefold: Onefold) -> None:
    fill(onefold)
    onefold.context.duplicate_log.flush()

    text = operate("status").stdout
    seen = read(operate("status", "--json"))

    assert text.startswith("1 job due, 1 running, 0 workers;")
    assert "1 duplicate suppressed" in text
    assert len(text.splitlines()) <= 24
    queues = {queue.pop("queue"): queue for queue in seen["queues"]}
    assert queues["mail"].pop("oldest") >= 0
    assert queues["mail"] == {
        "depth": 1, "running": 1, "retrying": 1, "scheduled": 1, "dead": 0, "paused": True
    }  # fmt: skip
    assert queues["default"]["dead"] == 1
    # Ids of one millisecond have no order.
    assert {job["error"]["type"] for job in seen["errors"]} == {
        "TimeoutError", "ValueError"
    }  # fmt: skip
    assert seen["last_day"]["duplicates"] == 1


def test_an_empty_database_says_what_to_do_next(operate: Operate, onefold: Onefold) -> None:
    text = operate("status").stdout

    assert "No worker runs. Start one: onefold worker MODULE:APP" in text
    assert "No job has failed." in text
    assert operate("workers").stdout == "No worker runs. Start one: onefold worker MODULE:APP\n"
    assert read(operate("workers", "--json")) == []


def test_a_push_worker_is_no_worker_of_queues_without_an_endpoint(
    operate: Operate, onefold: Onefold
) -> None:
    def started(name: str, kinds: tuple[str, ...] | None) -> None:
        row = WorkerRow(new_id(), name, "host", 1, ("hooks",), kinds, 5)
        onefold.context.store.transact(lambda sql: workers.save(sql, row))

    started("pusher", None)
    onefold.queues.save("hooks", QueueSettings(endpoint="http://127.0.0.1:9/"))
    for queue in ("hooks", "mail"):
        onefold.enqueue("email", queue=queue)

    pushed = operate("status").stdout
    started("worker", ("email",))
    served = operate("status").stdout

    assert "2 jobs due, 0 running, 0 workers, 1 push worker;" in pushed
    assert "No worker runs for queues without an endpoint. Start one: onefold worker" in pushed
    assert "0 running, 1 worker, 1 push worker;" in served
    assert "No worker takes the due jobs of mail. Start one: onefold worker MODULE:APP" in served
    assert read(operate("status", "--json"))["unserved"] == ["mail"]
    assert "none takes from mail: 1 due job waits." in operate("doctor").stdout


def on_terminal(
    columns: int, *arguments: str, folder: Path, quit_at: str = "", **variables: str
) -> str:
    """What the command prints on a terminal of this width; q is pressed at a text."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    hidden = {"COLUMNS", "LINES", "NO_COLOR"}
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    with subprocess.Popen(
        [ONEFOLD, *arguments],
        cwd=folder,
        stdout=follower,
        stderr=follower,
        stdin=follower if quit_at else subprocess.DEVNULL,
        env={**env, "TERM": "xterm-256color", **variables},
    ) as process:
        os.close(follower)
        printed = b""
        with suppress(OSError):  # the terminal is closed
            while part := os.read(leader, 65536):
                printed += part
                if quit_at and quit_at.encode() in printed:
                    os.write(leader, b"q")
        os.close(leader)
    assert process.returncode == 0
    return printed.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [40, 80])
def test_a_narrow_terminal_gets_narrow_tables(
    sqlite_url: str, tmp_path: Path, columns: int
) -> None:
    with Place(sqlite_url).open() as onefold:
        fill(onefold)

    printed = on_terminal(
        columns, "queues", "--database", sqlite_url, folder=tmp_path, NO_COLOR="1"
    )

    lines = re.sub(r"\x1b\[\d*m", "", printed).splitlines()
    assert any("mail" in line for line in lines)
    assert max(map(len, lines)) <= columns


def test_colours_are_for_terminals_that_want_them(migrated_sqlite_url: str, tmp_path: Path) -> None:
    where = ("--database", migrated_sqlite_url)

    coloured = on_terminal(100, "doctor", *where, folder=tmp_path)
    plain = on_terminal(100, "doctor", *where, folder=tmp_path, NO_COLOR="1")

    assert "\x1b[32m" in coloured
    assert "\x1b[32m" not in plain
