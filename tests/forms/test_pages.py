"""The pages of a submission that is not carried out; and no page with a key is stored."""

import asyncio
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from onefold.web import problems
from onefold.web.forms import Form, FormEntry, FormKeys, NoStore, Submitted, WsgiNoStore, no_store
from onefold.web.forms.pages import page
from onefold.web.http import HttpRequest, HttpResponse
from onefold.web.idempotency.body import Digested, digested
from onefold.web.problems import Problem
from tests.forms.html import inputs
from tests.http.test_wsgi import call

HTML = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
URLENCODED = "application/x-www-form-urlencoded"
ORDER = Submitted((FormEntry(name="onefold_key", value="K"), FormEntry(name="what", value="tea")))


def post(content_type: str = URLENCODED, accept: str = HTML) -> HttpRequest:
    headers = (("content-type", content_type), ("accept", accept))
    return HttpRequest(method="POST", path="/orders", query="from=home", headers=headers)


def asked(fields: dict[str, str], accept: str = HTML) -> tuple[HttpRequest, Digested]:
    return post(accept=accept), digested(urlencode(fields).encode())


def header(answer: HttpResponse, name: str) -> str | None:
    return dict(answer.headers).get(name)


KINDS = [
    problems.IN_PROGRESS, problems.LEASE_LOST, problems.CONFLICT_RETRY, problems.UNAVAILABLE,
    problems.NOT_RECORDED, problems.KEY_REUSED, problems.KEY_EXPIRED, problems.OUTCOME_UNKNOWN,
    problems.ATTEMPT_FAILED, problems.RESPONSE_NOT_KEPT,
]  # fmt: skip
PROBLEMS: list[Problem] = [
    *(problems.make(kind, retry_after=1) for kind in KINDS),
    problems.key_missing("Idempotency-Key"),
    problems.key_invalid("is not valid here"),
    problems.too_large(7),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.code)
def test_h203_h229_a_page_has_the_status_of_its_problem_and_is_not_stored(
    problem: Problem,
) -> None:
    answer = page(problem, ORDER)
    text = answer.body.decode()

    assert answer.status == problem.status
    assert header(answer, "Content-Type") == "text/html; charset=utf-8"
    assert header(answer, "Content-Length") == str(len(answer.body))
    assert header(answer, "Cache-Control") == "no-store"
    assert (header(answer, "Content-Security-Policy") or "").startswith("default-src 'none'")
    assert 'src="' not in text
    assert "http" not in text
    assert text.startswith('<!doctype html>\n<html lang="en">')
    for part in ("<title>", "<main>", "<h1>", 'role="status"', 'name="viewport"'):
        assert text.count(part) == 1


@pytest.mark.parametrize(("lease", "milliseconds"), [(1, 1000), (60, 2000)])
def test_the_wait_page_submits_the_same_again_soon(lease: int, milliseconds: int) -> None:
    answer = page(problems.make(problems.IN_PROGRESS, retry_after=lease), ORDER)

    assert [(field["name"], field["value"]) for field in inputs(answer.body)] == [
        ("onefold_key", "K"),
        ("what", "tea"),
    ]
    assert header(answer, "Retry-After") == str(lease)
    assert f",{milliseconds})</script>".encode() in answer.body
    assert b"<button>Look again</button>" in answer.body
    assert b"action" not in answer.body, "it goes where the form went"


def test_the_wait_page_of_files_asks_for_a_reload() -> None:
    form = Submitted(
        (*ORDER.entries, FormEntry(name="scan", filename="a.pdf")), "multipart/form-data"
    )

    answer = page(problems.make(problems.IN_PROGRESS, retry_after=3), form)

    assert inputs(answer.body) == []
    assert b"<script" not in answer.body
    assert b"Reload this page" in answer.body


def test_h222_what_was_submitted_is_kept_in_order_and_whole() -> None:
    tricky = '"><script>alert(1)</script>&amp;\r\nsecond line'
    entries = (
        FormEntry(name="b", value="2"),
        FormEntry(name="a", value=tricky),
        FormEntry(name="a", value=""),
        FormEntry(name="ü", value="ß"),
    )

    answer = page(problems.make(problems.KEY_REUSED), Submitted(entries))

    assert [(field["name"], field["value"]) for field in inputs(answer.body)] == [
        (entry.name, entry.value) for entry in entries
    ]
    assert b"<script>alert" not in answer.body


def test_h222_a_file_is_asked_for_again_by_its_name() -> None:
    entries = (
        FormEntry(name="scan", filename="tax & <more>.pdf"),
        FormEntry(name="photo", filename=""),
    )

    answer = page(problems.make(problems.KEY_REUSED), Submitted(entries, "multipart/form-data"))

    scan, photo = inputs(answer.body)
    assert (scan["type"], scan["name"], "required" in scan) == ("file", "scan", True)
    assert (photo["type"], photo["name"], "hidden" in photo) == ("file", "photo", True)
    assert b"Please choose the file tax &amp; &lt;more&gt;.pdf again" in answer.body
    assert b'enctype="multipart/form-data"' in answer.body


def test_h230_a_script_is_told_in_json(keys: FormKeys) -> None:
    form = Form(keys, "order")

    assert (
        form.page(*asked({}, accept="application/json"), problems.make(problems.KEY_REUSED)) is None
    )


def test_h224_pages_can_be_an_applications_own_without_what_was_forged(keys: FormKeys) -> None:
    given: list[Submitted] = []

    def own(problem: Problem, request: HttpRequest, form: Submitted) -> HttpResponse | None:
        given.append(form)
        if problem.code != "in_progress":
            return None
        return HttpResponse(409, (), f"Bitte warten: {form.values('what')[0]}".encode())

    form = Form(keys, "order", page=own)

    mine = form.page(*asked({"what": "Tee"}), problems.make(problems.IN_PROGRESS, retry_after=1))
    ours = form.page(*asked({"what": "Tee"}), problems.make(problems.OUTCOME_UNKNOWN))
    forged = {"what": "everything to Mallory", "onefold_key": "forged"}
    form.page(*asked(forged), problems.key_invalid("is not valid here"))

    assert given[-1] == Submitted()
    assert mine is not None
    assert mine.body == b"Bitte warten: Tee"
    assert ours is not None
    assert b"We are checking" in ours.body


Page = Callable[[], str]


def by_asgi(page: Page) -> dict[str, str]:
    """The headers of a page of an ASGI application."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = page().encode()
        headers = [(b"cache-control", b"max-age=60"), (b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def ask() -> httpx.Headers:
        transport = httpx.ASGITransport(app=NoStore(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return (await client.get("/")).headers

    return dict(asyncio.run(ask()))


def by_wsgi(page: Page, *, is_late: bool = False) -> dict[str, str]:
    """The headers of a page of a WSGI application, which may begin when it is iterated."""

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        body = page().encode()
        start_response("200 OK", [("cache-control", "max-age=60"), ("Content-Type", "text/html")])
        return [body]

    def late(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        yield from app(environ, start_response)

    ((_, headers),) = call(WsgiNoStore(late if is_late else app)).starts
    return {name.lower(): value for name, value in headers}


def by_late_wsgi(page: Page) -> dict[str, str]:
    return by_wsgi(page, is_late=True)


@pytest.mark.parametrize("headers_of", [by_asgi, by_wsgi, by_late_wsgi])
def test_h229_a_page_with_a_key_is_not_stored_and_another_is_left_alone(
    keys: FormKeys, headers_of: Callable[[Page], dict[str, str]]
) -> None:
    with_key = headers_of(lambda: keys.hidden_field("order", "a"))
    without = headers_of(lambda: "hello")

    assert with_key == {"content-type": "text/html", "cache-control": "no-store"}
    assert without == {"content-type": "text/html", "cache-control": "max-age=60"}


def test_h229_the_log_says_once_where_nothing_keeps_pages_out_of_caches(
    keys: FormKeys, caplog: pytest.LogCaptureFixture
) -> None:
    no_store._warn_once.cache_clear()

    with caplog.at_level("WARNING", logger="onefold.web"):
        Context().run(keys.issue, "order", "a")
        Context().run(keys.issue, "order", "a")

    (message,) = caplog.messages
    assert "wrap the application in NoStore or WsgiNoStore" in message
