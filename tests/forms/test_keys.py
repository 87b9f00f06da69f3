"""The key in a hidden field (H220, H224, H225)."""

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.errors import InvalidInput
from onefold.testing.clock import Clock
from onefold.web.forms import FormKey, FormKeys, RefusedKey
from onefold.web.forms.form_keys import SKEW, hidden_input
from tests.forms.conftest import SECRET
from tests.forms.html import inputs


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


def test_h225_a_key_is_expired_after_a_day(keys: FormKeys, clock: Clock) -> None:
    key = keys.issue("order", "a")

    clock.advance(timedelta(hours=24))
    assert isinstance(keys.check(key, "order", "a"), FormKey)
    clock.advance(timedelta(seconds=1))

    assert keys.check(key, "order", "a") == RefusedKey("expired")


def test_a_key_from_the_future_is_refused(keys: FormKeys) -> None:
    """Unless the clock of another server is only a little ahead."""
    skewed = FormKeys(SECRET, clock=Clock(Clock().now + SKEW))
    ahead = FormKeys(SECRET, clock=Clock(Clock().now + SKEW + timedelta(seconds=1)))

    assert isinstance(keys.check(skewed.issue("order", "a"), "order", "a"), FormKey)
    assert keys.check(ahead.issue("order", "a"), "order", "a") == RefusedKey("expired")


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


def test_what_could_end_a_field_is_escaped() -> None:
    (field,) = inputs(hidden_input('a"b', "<c>&'"))

    assert (field["name"], field["value"]) == ('a"b', "<c>&'")
