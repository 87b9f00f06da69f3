"""Problems, and Retry-After: what a client is told when its request is not carried out."""

import json
import re
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path

import pytest

from onefold.model.retry import LONGEST, parse_retry_after, whole_seconds
from onefold.web import problems
from onefold.web.http import HttpRequest
from onefold.web.problems import KINDS, Problem

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "problems.md"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"

SPECIAL: list[Problem] = [
    problems.key_missing("Idempotency-Key"),
    problems.key_invalid("must not be empty"),
    problems.make(problems.IN_PROGRESS, retry_after=timedelta(seconds=2.5)),
    problems.too_large(1000),
    problems.make(problems.UNAVAILABLE, retry_after=5),
]
SPECIAL_CODES = {made.code for made in SPECIAL}
MADE = [*SPECIAL, *(problems.make(kind) for kind in KINDS if kind.code not in SPECIAL_CODES)]


def request(*accept: str, path: str = "/payments") -> HttpRequest:
    headers = tuple(("accept", value) for value in accept)
    return HttpRequest(method="POST", path=path, headers=headers)


@pytest.mark.parametrize("problem", MADE, ids=lambda made: made.code)
def test_h200_every_refusal_is_problem_json_with_stable_names(problem: Problem) -> None:
    answer = problem.answer(request())
    members = json.loads(answer.body)

    assert answer.value("content-type") == "application/problem+json"
    assert answer.value("content-length") == str(len(answer.body))
    assert answer.value("cache-control") == "no-store"
    assert set(members) == {"type", "title", "status", "detail", "instance", "code"}
    assert members["status"] == answer.status == HTTPStatus(problem.status)
    assert members["type"] == f"urn:onefold:problem:{members['code']}"
    assert members["instance"] == "/payments"
    assert re.fullmatch(r"[A-Z].*\.", members["detail"])
    assert problem.extra == {}  # H202: there is no place for a key or a body


CODES = """key_missing 400 key_invalid 400 key_expired 400 not_configured 400 nothing_selected 400
incomplete 400 not_identified 401 in_progress 409 outcome_unknown 409 response_not_kept 409
lease_lost 409 too_large 413 key_reused 422 attempt_failed 500 unavailable 503 not_recorded 503
conflict_retry 503"""


def test_h200_codes_and_statuses_do_not_change_and_are_documented() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \| (.+?) \|", PAGE.read_text(), re.MULTILINE)

    assert CODES.split() == [part for kind in KINDS for part in (kind.code, str(kind.status))]
    assert rows == [(kind.code, str(kind.status), kind.title) for kind in KINDS]


def test_a_link_cannot_break_out_of_its_header_or_page() -> None:
    missing = problems.key_missing("Idempotency-Key").described_by('/a>\r\nX: 1"<script>')

    assert missing.answer(request()).value("link") == (
        '</a%3E%0D%0AX:%201%22%3Cscript%3E>; rel="describedby"'
    )
    assert b"<script>" not in missing.answer(request("text/html")).body
    page = problems.key_invalid("<script>").answer(request("text/html")).body
    assert b"&lt;script&gt;" in page
    assert b"<script>" not in page


@pytest.mark.parametrize(
    ("path", "instance"),
    [
        ("/a b", "/a%20b"),
        ("//evil.example/a", "/evil.example/a"),
        ("/%C3%BC/ü", "/%C3%BC/%C3%BC"),
        ('/"<>', "/%22%3C%3E"),
        ("/\ud800", "/%3F"),
        ("", "/"),
    ],
)
def test_h200_the_instance_is_the_path_as_a_uri(path: str, instance: str) -> None:
    answer = problems.make(problems.KEY_REUSED).answer(request(path=path))

    assert json.loads(answer.body)["instance"] == instance


@pytest.mark.parametrize(
    "accept",
    [
        (BROWSER,),
        ("text/html",),
        ("text/html;q=0.9, application/json;q=0.8",),
        ("TEXT/HTML",),
        ("text/*, application/json;q=0.5",),
        ("application/json;q=0.2", "text/html;q=0.3"),
        ("text/html;level=1",),
    ],
)
def test_h203_a_browser_is_told_by_a_page_of_the_same_status(accept: tuple[str, ...]) -> None:
    answer = problems.make(problems.IN_PROGRESS, retry_after=3).answer(request(*accept))

    assert (answer.status, answer.value("retry-after")) == (409, "3")
    assert answer.value("content-type") == "text/html; charset=utf-8"
    assert answer.value("vary") == "Accept"
    assert b"<h1>Request in progress</h1>" in answer.body
    assert b"still running" in answer.body


@pytest.mark.parametrize(
    "accept",
    [
        (),
        ("*/*",),
        ("application/json",),
        ("application/problem+json, text/html",),
        ("application/json, text/html",),
        ("text/html;q=0, */*",),
        ("text/html;q=0.5, application/*;q=0.6",),
        ("text/html;q=2",),
        ("text/html;q=",),
        ("",),
        (";,;,/",),
        ("text/html," + "a/b," * 2000,),
    ],
)
def test_h203_everybody_else_by_json(accept: tuple[str, ...]) -> None:
    answer = problems.make(problems.IN_PROGRESS, retry_after=3).answer(request(*accept))

    assert answer.value("content-type") == "application/problem+json"


NOW = datetime(1999, 12, 31, 23, 59, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("120", 120), ("0", 0), ("007", 7), (" 5\t", 5)),  # H205
        ("Fri, 31 Dec 1999 23:58:59 GMT", 0),  # H206
        ("Fri, 31 Dec 1999 23:59:00 GMT", 0),
        ("Sat, 01 Jan 2000 00:00:00 GMT", 60),  # H207
        ("Saturday, 01-Jan-00 00:00:00 GMT", 60),
        ("Sat Jan  1 00:00:00 2000", 60),
    ],
)
def test_h205_h206_h207_it_is_seconds_or_a_date_in_any_spelling(text: str, seconds: int) -> None:
    assert parse_retry_after(text, now=NOW) == timedelta(seconds=seconds)


def test_h207_it_counts_from_the_date_of_the_response() -> None:
    def wait(date: str) -> timedelta | None:
        return parse_retry_after("Sat, 01 Jan 2000 00:00:00 GMT", now=NOW, date=date)

    assert wait("Fri, 31 Dec 1999 23:50:00 GMT") == 10 * MINUTE
    assert wait("Sat, 01 Jan 2000 00:01:00 GMT") == timedelta(0)
    assert wait("yesterday") == MINUTE


@pytest.mark.parametrize(
    "text",
    [
        *("-1", "1.5", "nan", "inf", "Infinity", "1e3", "+5", "", " ", "٣", "1_000", "0x10"),
        *("5 seconds", "5, 6", "soon", "Fri", "\uff11\uff12"),
        "Fri, 99 Dec 1999 23:59:59 GMT",
        "Sat, 01 Jan 2000 00:00:00 GMT" + " " * 100 + "x",
        "Sat, 01 Jan 0000 00:00:00 GMT",
        "Sat, 01 Jan 2000 00:00:00 +0100",
        "Sat, 01 Jan 2000 00:00:00",
        "Sat, 01 Jan 2000 99:99:99 GMT",
        "Sat, 01 Xxx 2000 00:00:00 GMT",
        "Sat, 01 Jan 2000 ::::::::: GMT",
        "Sat, 01 Jan 2000 :::::::: GMT",
    ],
)
def test_h208_anything_else_is_no_answer(text: str) -> None:
    assert parse_retry_after(text, now=NOW) is None


@pytest.mark.parametrize(("text", "seconds"), [("120.1", 121), ("120.6", 121), ("0.0", 0)])
def test_h208_fractions_are_rounded_up_where_that_is_wished(text: str, seconds: int) -> None:
    assert parse_retry_after(text, now=NOW, fractions=True) == timedelta(seconds=seconds)
    assert parse_retry_after(text, now=NOW) is None
    for other in (".5", "5.", "-0.5", "1.5e3", "nan"):
        assert parse_retry_after(other, now=NOW, fractions=True) is None


@pytest.mark.parametrize("text", ["99999999999", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_h209_an_enormous_wait_is_cut_to_a_bound(text: str) -> None:
    assert parse_retry_after(text, now=NOW) == LONGEST
    assert parse_retry_after(text, now=NOW, longest=MINUTE) == MINUTE


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        (timedelta(milliseconds=1), 1),
        (timedelta(seconds=2, microseconds=1), 3),
        (timedelta(seconds=-5), 1),
        (0, 1),
        (1.5, 2),
        (float("inf"), 86400),
        (float("nan"), 1),
        (timedelta.max, 86400),
    ],
)
def test_h204_ours_is_a_whole_number_of_seconds(wait: timedelta | float, seconds: int) -> None:
    assert whole_seconds(wait) == seconds
    assert whole_seconds(0, least=0) == whole_seconds(-3, least=-5) == 0
    assert whole_seconds(90, most=MINUTE) == 60
