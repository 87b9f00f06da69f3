import json
import logging
import sys
from typing import Any

from onefold.cli.logs import JsonFormatter
from onefold.worker.job_log import TextFormatter


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
