"""Keys of forms: how they are made, found and refused (H220, H224, H225, H230)."""

import re
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold import InvalidInput, UsageError
from onefold.testing.clock import Clock
from onefold.web.forms import Form, FormKey, FormKeys, RefusedKey
from onefold.web.forms.form import read_form
from onefold.web.forms.form_keys import SKEW, hidden_input
from onefold.web.http import HttpRequest
from onefold.web.idempotency.body import digested
from onefold.web.problems import Refused
from tests.forms.conftest import SECRET
from tests.forms.html import inputs
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


def test_h220_no_two_keys_have_one_id(keys: FormKeys) -> None:
    ids = {keys.issue("order", "session-7").split(".")[1] for _ in range(1000)}

    assert len(ids) == 1000
    # 128 random bits: nobody guesses one.
    assert {len(one) for one in ids} == {22}
    key = keys.issue("f" * 64, "session-7" * 1000)
    assert len(key) <= 255
    assert re.fullmatch(r"[A-Za-z0-9._-]+", key)
    assert "session-7" not in key


def test_h220_keys_of_one_session_share_their_scope_and_others_do_not(keys: FormKeys) -> None:
    def scope(form: str, session: str) -> str:
        found = keys.check(keys.issue(form, session), form, session)
        assert isinstance(found, FormKey)
        return found.scope

    assert scope("order", "a") == scope("order", "a")
    assert len({scope("order", "a"), scope("order", "b"), scope("refund", "a")}) == 3


@pytest.mark.parametrize(
    "text",
    ["", ".", "1", "1.2.3.4.5.6", "....", "1.a.order.b.Z.\udc80", "ü.ö", "\x00", "1." * 10_000],
)
def test_h225_what_nobody_signed_is_refused(keys: FormKeys, text: str) -> None:
    assert keys.check(text, "order", "a") == RefusedKey("forged")


@given(st.integers(min_value=0), st.characters(codec="utf-8"))
def test_h225_no_changed_character_makes_another_key(place: int, character: str) -> None:
    keys = FormKeys(SECRET)
    key = keys.issue("order", "a")
    place %= len(key)
    changed = key[:place] + character + key[place + 1 :]

    found = keys.check(changed, "order", "a")

    # The last bits of base64 mean nothing, so a signature has a few spellings: of one key.
    assert found == RefusedKey("forged") or found == keys.check(key, "order", "a")


def test_h225_a_key_is_expired_after_a_day_and_not_valid_before_its_time(
    keys: FormKeys, clock: Clock
) -> None:
    # The clock of another server may be a little ahead.
    skewed = FormKeys(SECRET, clock=Clock(Clock().now + SKEW))
    ahead = FormKeys(SECRET, clock=Clock(Clock().now + SKEW + timedelta(seconds=1)))
    assert isinstance(keys.check(skewed.issue("order", "a"), "order", "a"), FormKey)
    assert keys.check(ahead.issue("order", "a"), "order", "a") == RefusedKey("expired")

    key = keys.issue("order", "a")
    clock.advance(timedelta(hours=24))
    assert isinstance(keys.check(key, "order", "a"), FormKey)
    clock.advance(timedelta(seconds=1))
    assert keys.check(key, "order", "a") == RefusedKey("expired")


def test_a_key_is_good_after_its_secret_was_retired(keys: FormKeys, clock: Clock) -> None:
    key = keys.issue("order", "a")
    renewed = FormKeys("a new secret of some length", retired=[SECRET], clock=clock)

    before, after = keys.check(key, "order", "a"), renewed.check(key, "order", "a")

    assert isinstance(before, FormKey)
    assert before == after
    assert keys.check(renewed.issue("order", "a"), "order", "a") == RefusedKey("forged")


def test_a_key_of_a_later_version_is_not_guessed_at(
    keys: FormKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.web.forms.form_keys.VERSION", "2")
    key = keys.issue("order", "a")
    monkeypatch.undo()

    assert keys.check(key, "order", "a") == RefusedKey("unknown version")


@pytest.mark.parametrize("form", ["", "a.b", "a b", "ö", "x" * 65, None])
def test_a_form_that_cannot_be_named_so_is_refused(keys: FormKeys, form: str) -> None:
    with pytest.raises(InvalidInput, match=r"form must be 1 to 64 letters"):
        keys.issue(form, "a")


@pytest.mark.parametrize("session", ["", None, 7])
def test_a_visitor_without_a_session_gets_no_key(keys: FormKeys, session: str) -> None:
    with pytest.raises(InvalidInput, match=r"session must be a text that is the same"):
        keys.issue("order", session)
    with pytest.raises(InvalidInput, match=r"session must be a text that is the same"):
        keys.check("1.2.3", "order", session)


@pytest.mark.parametrize("secret", ["", "short", b"x" * 15, None])
def test_a_secret_that_can_be_guessed_is_refused(secret: str) -> None:
    with pytest.raises(InvalidInput, match=r"secret must be text or bytes, 16 bytes or more"):
        FormKeys(secret)
    with pytest.raises(InvalidInput, match=r"secret must be text or bytes, 16 bytes or more"):
        FormKeys(SECRET, retired=[secret])


def test_settings_are_checked_and_not_shown(keys: FormKeys) -> None:
    with pytest.raises(InvalidInput, match=r"retired must be a list of secrets"):
        FormKeys(SECRET, retired=SECRET)
    with pytest.raises(InvalidInput, match=r"max_age must be longer than zero"):
        FormKeys(SECRET, max_age=timedelta(0))
    assert SECRET not in repr(keys)


def test_h220_a_field_in_plain_python_has_a_key(keys: FormKeys) -> None:
    page = f"<form method=post>{keys.hidden_field('order', 'a')}<button>Order</button></form>"

    (field,) = inputs(page)
    assert field["type"] == "hidden"
    assert (field["name"], field["autocomplete"]) == ("onefold_key", "off")
    (other,) = inputs(FormKeys(SECRET, field="once").hidden_field("order", "a"))
    assert other["name"] == "once"
    assert isinstance(keys.check(field["value"], "order", "a"), FormKey)

    (field,) = inputs(hidden_input('a"b', "<c>&'"))

    assert (field["name"], field["value"]) == ('a"b', "<c>&'")
