"""Problems: what a client is told when its request is not carried out."""

import json
import pickle
import re
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path

import pytest

from onefold import OnefoldError
from onefold.web import problems
from onefold.web.http import HttpRequest, HttpResponse
from onefold.web.problems import KINDS, Problem, ProblemKind, Refused

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "problems.md"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"

MADE: list[Problem] = [
    problems.key_missing("Idempotency-Key"),
    problems.key_invalid("must not be empty"),
    problems.make(problems.KEY_EXPIRED),
    problems.make(problems.NOT_CONFIGURED),
    problems.make(problems.NOTHING_SELECTED),
    problems.make(problems.INCOMPLETE),
    problems.make(problems.NOT_IDENTIFIED),
    problems.make(problems.IN_PROGRESS, retry_after=timedelta(seconds=2.5)),
    problems.make(problems.OUTCOME_UNKNOWN),
    problems.make(problems.RESPONSE_NOT_KEPT),
    problems.make(problems.LEASE_LOST),
    problems.too_large(1000),
    problems.make(problems.KEY_REUSED),
    problems.make(problems.ATTEMPT_FAILED),
    problems.make(problems.UNAVAILABLE, retry_after=5),
    problems.make(problems.NOT_RECORDED),
    problems.make(problems.CONFLICT_RETRY),
]


def request(*accept: str, path: str = "/payments") -> HttpRequest:
    headers = tuple(("accept", value) for value in accept)
    return HttpRequest(method="POST", path=path, headers=headers)


def header(answer: HttpResponse, name: str) -> str | None:
    return answer.value(name)


@pytest.mark.parametrize("problem", MADE, ids=lambda made: made.code)
def test_h200_every_refusal_is_problem_json_with_stable_names(problem: Problem) -> None:
    answer = problem.answer(request())
    members = json.loads(answer.body)

    assert header(answer, "content-type") == "application/problem+json"
    assert header(answer, "content-length") == str(len(answer.body))
    assert header(answer, "cache-control") == "no-store"
    assert set(members) == {"type", "title", "status", "detail", "instance", "code"}
    assert members["status"] == answer.status == HTTPStatus(problem.status)
    assert members["type"] == f"urn:onefold:problem:{members['code']}"
    assert members["instance"] == "/payments"
    assert re.fullmatch(r"[A-Z].*\.", members["detail"])


def test_h200_every_kind_is_checked_here() -> None:
    assert [made.code for made in MADE] == [kind.code for kind in KINDS]
    assert len({kind.code for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("key_missing", 400),
        ("key_invalid", 400),
        ("key_expired", 400),
        ("not_configured", 400),
        ("nothing_selected", 400),
        ("incomplete", 400),
        ("not_identified", 401),
        ("in_progress", 409),
        ("outcome_unknown", 409),
        ("response_not_kept", 409),
        ("lease_lost", 409),
        ("too_large", 413),
        ("key_reused", 422),
        ("attempt_failed", 500),
        ("unavailable", 503),
        ("not_recorded", 503),
        ("conflict_retry", 503),
    ],
)
def test_h200_codes_and_statuses_do_not_change(code: str, status: int) -> None:
    assert (code, status) in {(kind.code, kind.status) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_h200_the_documentation_has_every_kind(kind: ProblemKind) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \| (.+?) \|", PAGE.read_text(), re.MULTILINE)

    assert (kind.code, str(kind.status), kind.title) in rows


def test_h200_the_documentation_has_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", PAGE.read_text(), re.MULTILINE)

    assert [code for code, _ in rows] == [kind.code for kind in KINDS]


def test_h201_those_of_one_status_are_told_apart_by_their_type() -> None:
    assert len({made.type for made in MADE if made.status == 409}) == 4


def test_h001_a_missing_key_is_told_with_a_link_to_the_documentation() -> None:
    missing = problems.key_missing("X-Key").described_by("https://api.example/docs#keys")
    answer = missing.answer(request())

    assert answer.status == 400
    assert header(answer, "link") == '<https://api.example/docs#keys>; rel="describedby"'
    assert "X-Key" in json.loads(answer.body)["detail"]


def test_h001_without_a_link_there_is_none() -> None:
    assert (
        header(problems.key_missing("Idempotency-Key").described_by(None).answer(request()), "link")
        is None
    )


def test_a_link_cannot_break_out_of_its_header_or_page() -> None:
    missing = problems.key_missing("Idempotency-Key").described_by('/a>\r\nX: 1"<script>')

    assert header(missing.answer(request()), "link") == (
        '</a%3E%0D%0AX:%201%22%3Cscript%3E>; rel="describedby"'
    )
    assert b"<script>" not in missing.answer(request("text/html")).body


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


def test_more_members_cannot_replace_the_stable_ones() -> None:
    answer = problems.make(
        problems.RESPONSE_NOT_KEPT, extra={"status": 200, "original_status": 201}
    ).answer(request())
    members = json.loads(answer.body)

    assert (members["status"], members["original_status"]) == (409, 201)


@pytest.mark.parametrize("problem", MADE, ids=lambda made: made.code)
def test_h202_a_problem_has_no_place_for_a_key_or_a_body(problem: Problem) -> None:
    """The constructors take none; `read_key` is shown not to pass any on in test_key."""
    assert problem.extra == {}


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

    assert (answer.status, header(answer, "retry-after")) == (409, "3")
    assert header(answer, "content-type") == "text/html; charset=utf-8"
    assert header(answer, "vary") == "Accept"
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

    assert header(answer, "content-type") == "application/problem+json"


def test_h203_the_page_escapes_what_it_says() -> None:
    page = problems.key_invalid("<script>").answer(request("text/html")).body

    assert b"&lt;script&gt;" in page
    assert b"<script>" not in page


@pytest.mark.parametrize("wait", [timedelta(microseconds=1), timedelta(0), -5, 0.2, 1])
def test_h204_retry_after_is_a_whole_number_of_seconds(wait: timedelta | float) -> None:
    busy = problems.make(problems.IN_PROGRESS, retry_after=wait)

    assert header(busy.answer(request()), "retry-after") == "1"


def test_h204_an_unknown_outcome_promises_no_time() -> None:
    answer = problems.make(problems.OUTCOME_UNKNOWN).answer(request())

    assert header(answer, "retry-after") is None


def test_a_refusal_is_an_error_of_ours_with_the_status_of_its_problem() -> None:
    refused = Refused(problems.make(problems.KEY_REUSED))

    assert isinstance(refused, OnefoldError)
    assert (refused.status, refused.problem.code) == (422, "key_reused")
    assert pickle.loads(pickle.dumps(refused)).problem == refused.problem
