"""Where the key of a submission is found, and which ones are refused (H220, H224, H225, H230)."""

from datetime import timedelta
from urllib.parse import urlencode

import pytest

from onefold import InvalidInput, UsageError
from onefold.testing.clock import Clock
from onefold.web.forms import Form, FormKeys
from onefold.web.forms.form import read_form
from onefold.web.http import HttpRequest
from onefold.web.idempotency.body import digested
from onefold.web.problems import Refused
from tests.http.fingerprints import field, file, fingerprint, multipart

URLENCODED = "application/x-www-form-urlencoded"


@pytest.fixture
def form(keys: FormKeys) -> Form:
    return Form(keys, "order")


def post(content_type: str = URLENCODED, key: str | None = None) -> HttpRequest:
    headers = [("content-type", content_type)]
    if key is not None:
        headers.append(("idempotency-key", key))
    return HttpRequest(method="POST", path="/orders", headers=tuple(headers))


def read(form: Form, body: str = "", session: str | None = "a", key: str | None = None) -> object:
    """What `read` answers, or the code of the problem."""
    try:
        return form.read(post(key=key), digested(body.encode()), session)
    except Refused as refused:
        return (refused.problem.status, refused.problem.code)


def test_h224_h225_h230_which_keys_are_refused(form: Form, clock: Clock) -> None:
    key, other = form.keys.issue("order", "a"), form.keys.issue("order", "a")
    body = urlencode({"onefold_key": key})

    for session in ("b", None, ""):
        assert read(form, body, session=session) == (400, "key_invalid")
    assert read(form, body, key=key) == read(form, body)
    assert read(form, body, key=other) == (400, "key_invalid")
    assert read(form, urlencode([("onefold_key", key)] * 2)) == (400, "key_invalid")
    clock.advance(timedelta(days=2))
    assert read(form, body) == (400, "key_expired")


def test_h224_h225_a_refusal_does_not_tell_what_was_wrong(form: Form) -> None:
    def told(text: str) -> str:
        with pytest.raises(Refused) as refused:
            form.read(post(), digested(urlencode({"onefold_key": text}).encode()), "a")
        return refused.value.problem.detail

    keys = form.keys
    good = keys.issue("order", "a")
    refusals = {told(keys.issue("order", "b")), told(keys.issue("refund", "a")), told("forged")}

    assert refusals == {told(good[:-4])}


def test_h224_a_log_says_why_and_not_what(form: Form, caplog: pytest.LogCaptureFixture) -> None:
    key = form.keys.issue("order", "b")
    caplog.clear()  # The first key that a process issues may have warned of caches.

    with caplog.at_level("INFO", logger="onefold.web"):
        read(form, urlencode({"onefold_key": key, "secret": "s3cret"}))

    assert caplog.messages == ["A key of the form order was rejected: other session"]


def test_h057_the_key_and_a_csrf_token_do_not_tell_submissions_apart(form: Form) -> None:
    def told(**fields: str) -> str:
        body = urlencode({"what": "tea", **fields}).encode()
        return fingerprint(post(), body, form.options["fingerprint"])

    first = told(onefold_key="1", csrfmiddlewaretoken="x")

    assert told(onefold_key="2", csrfmiddlewaretoken="y") == first
    assert told(onefold_key="1", more="1") != first


def test_h227_the_fields_of_an_upload_are_read(form: Form) -> None:
    content_type, body = multipart(
        "abc",
        (field("onefold_key"), b"K"),
        (file("scan", "täx.pdf"), b"%PDF"),
        (file("photo", ""), b""),
    )

    found = read_form(post(content_type), digested(body))

    assert found.values("onefold_key") == ["K"]
    assert [(one.name, one.filename) for one in found.files] == [("scan", "täx.pdf")]
    assert found.media_type == "multipart/form-data"


def test_a_body_that_is_no_form_has_no_fields() -> None:
    assert read_form(post("application/json"), digested(b"{}")).entries == ()
    assert read_form(post("multipart/form-data"), digested(b"x")).entries == ()


# --- keys that browsers make ----------------------------------------------------------------------

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"


def test_a_client_made_key_is_scoped_to_the_session_and_the_form() -> None:
    form, other = Form(keys="client", name="order"), Form(keys="client", name="offer")
    body = urlencode({"what": "tea", "onefold_key": UUID})

    mine, again = read(form, body), read(form, "what=tea", key=UUID.upper())
    theirs, elsewhere = read(form, body, "b"), read(other, body)

    assert mine == again
    assert len({mine, theirs, elsewhere}) == 3
    assert UUID in str(mine)
    assert read(form, body, session=None) == (400, "key_invalid")


@pytest.mark.parametrize(
    "key", ["", "1", "0" * 32, "00000000-0000-0000-0000-000000000000", "x" * 300]
)
def test_what_is_no_uuid_is_refused_as_a_client_made_key(key: str) -> None:
    form = Form(keys="client", name="order")

    assert read(form, urlencode({"onefold_key": key})) == (400, "key_invalid")


def test_a_form_of_client_made_keys_issues_none() -> None:
    with pytest.raises(UsageError, match="Browsers make the keys"):
        _ = Form(keys="client", name="order").keys

    with pytest.raises(InvalidInput, match="keys must be FormKeys"):
        Form(keys="server", name="order")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
