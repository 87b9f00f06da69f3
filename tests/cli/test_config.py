"""The files, durations, moments and queues that a command reads, and the lines that it logs."""

import inspect
import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from onefold import InvalidInput
from onefold.cli import parsers
from onefold.cli.config import KEYS, read_configuration
from onefold.cli.logs import JsonFormatter
from onefold.cli.serve import serve
from onefold.cli.worker import worker
from onefold.worker.job_log import TextFormatter
from onefold.worker.settings import read_queues, worker_settings


def write(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text)
    return path


def test_the_file_is_the_nearest_that_speaks_of_onefold(tmp_path: Path) -> None:
    folder = tmp_path / "service" / "source"
    folder.mkdir(parents=True)
    write(folder.parent, "[project]\nname = 'service'\n")
    path = write(tmp_path, "[tool.onefold.worker]\nconcurrency = 3\n")

    assert read_configuration(folder) == (path, {"concurrency": 3})


def test_values_are_told_as_flags_would_be(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        [tool.onefold.worker]
        app = "shop:onefold"
        queues = ["email", "default:5"]
        lease = 30
        poll = 0.5
        grace = "10s"
        chores = false
        log-format = "json"
        """,
    )

    assert read_configuration(tmp_path).settings == {
        "app": "shop:onefold",
        "queues": "email,default:5",
        "lease": 30,
        "poll": "0.5",
        "grace": "10s",
        "chores": False,
        "log_format": "json",
    }


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[tool.onefold.worker]\nconcurency = 5", "tool.onefold.worker.concurency"),
        ("[tool.onefold.workers]\nconcurrency = 5", "tool.onefold.workers"),
        ("[tool.onefold.worker]\nconcurrency = '5'", "tool.onefold.worker.concurrency"),
        ("[tool.onefold.worker]\nconcurrency = true", "tool.onefold.worker.concurrency"),
        ("[tool.onefold.worker]\nqueues = [5]", "tool.onefold.worker.queues"),
        ("[tool.onefold]\nworker = 5", "tool.onefold.worker"),
        ("[tool]\nonefold = 5", "tool.onefold"),
        ("[tool.onefold.worker", "TOML"),
    ],
)
def test_a_slip_is_refused_with_the_names_of_key_and_file(
    text: str, named: str, tmp_path: Path
) -> None:
    path = write(tmp_path, text)

    with pytest.raises(InvalidInput) as caught:
        read_configuration(tmp_path)

    assert named in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("name", "command"), [("worker", worker), ("serve", serve)])
def test_every_flag_of_a_worker_and_of_a_server_is_a_key(
    name: str, command: Callable[..., None]
) -> None:
    flags = set(inspect.signature(command).parameters) - {"context", "as_process"}

    assert flags == set(KEYS[name])


def test_a_server_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "[tool.onefold.serve]\nport = 1")
    path = tmp_path / "onefold.toml"
    path.write_text('[serve]\nport = 8080\npush-allow = ["10.0.0.0/8", "127.0.0.1"]')

    said = {"port": 8080, "push_allow": "10.0.0.0/8,127.0.0.1"}
    assert read_configuration(tmp_path, "serve") == (path, said)
    path.write_text("[serve]\nprot = 8080")
    with pytest.raises(InvalidInput, match=r"serve\.prot in .*onefold\.toml"):
        read_configuration(tmp_path, "serve")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("30s", 30),
        ("0.5", 0.5),
        ("250ms", 0.25),
        ("5m", 300),
        ("1.5 h", 5400),
        (" 7d ", 604800),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert parsers.duration(text, "lease") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "s", "-5s", "5 weeks", "1e3", "5s5s", "999999999999d"])
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parsers.duration(text, "lease")

    assert caught.value.field == "lease"


def test_a_moment_is_a_day_or_a_time_in_utc_unless_it_says_otherwise() -> None:
    berlin = timezone(timedelta(hours=2))

    assert parsers.moment("2026-03-29", "ended_from") == datetime(2026, 3, 29, tzinfo=UTC)
    assert parsers.moment("2026-03-29T12:00:00+02:00", "ended_from") == datetime(
        2026, 3, 29, 12, tzinfo=berlin
    )


def test_a_moment_may_be_so_long_ago() -> None:
    before = datetime.now(UTC)

    found = parsers.moment("2h", "ended_from")

    assert before <= found + timedelta(hours=2) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("text", "said"), [("9999999d", "is before the year 1"), ("yesterday", "must be a time")]
)
def test_what_is_no_moment_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"ended_from {said}"):
        parsers.moment(text, "ended_from")


def test_queues_are_names_some_with_a_number() -> None:
    assert read_queues("email, default:5,eu:mail:10,a:b:") == {
        "email": None,
        "default": 5,
        "eu:mail": 10,
        "a:b": None,
    }
    with pytest.raises(InvalidInput, match=r"number after the colon.* 'mail:x'.* write 'mail:x:'"):
        read_queues("email,mail:x")


def test_a_time_that_is_too_short_is_refused_in_seconds() -> None:
    with pytest.raises(InvalidInput, match=r"lease must not be shorter than 0\.1 s, got 0 s"):
        worker_settings({"lease": parsers.duration("0s", "lease")})


def record(message: str = "hello %s", *args: object, **extra: Any) -> logging.LogRecord:
    return logging.getLogger("app").makeRecord(
        "app", logging.INFO, __file__, 1, message, args or ("ann",), None, extra=extra
    )


def read(made: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(made)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_an_exception_is_a_field() -> None:
    made = record()
    try:
        int("no such luck")
    except ValueError:
        made.exc_info = sys.exc_info()

    assert "ValueError: invalid literal" in read(made)["exception"]


def test_whatever_a_record_carries_the_line_is_json() -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError

    circle: list[Any] = []
    circle.append(circle)
    for value in ({1, 2}, object(), Odd(), 10**40, "\ud800", {(1, 2): 3}, float("nan"), circle):
        assert "odd" in read(record(odd=value)), value
    assert read(record("\ud800 %s", "\n"))["message"]


def test_a_line_of_text_names_its_job_once() -> None:
    text = TextFormatter("%(message)s")
    known: dict[str, Any] = {"job_id": "0198", "kind": "greet", "attempt": 2}

    assert text.format(record(**known)) == "hello ann [job 0198, greet, attempt 2]"
    assert text.format(record("job %s was greeted", "0198", **known)) == "job 0198 was greeted"
    assert text.format(record()) == "hello ann"
