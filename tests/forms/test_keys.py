"""The key in a hidden field (H220, H224, H225)."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.errors import InvalidInput
from onefold.testing.clock import Clock
from onefold.web.forms import FormKey, FormKeys, RefusedKey
from onefold.web.forms.form_keys import SKEW
from tests.forms.conftest import SECRET


def test_h220_a_key_says_which_form_and_when(keys: FormKeys, clock: Clock) -> None:
    found = keys.check(keys.issue("order", "session-7"), "order", "session-7")

    assert isinstance(found, FormKey)
    assert (found.form, found.issued_at) == ("order", clock.now)


def test_h220_no_two_keys_have_one_id(keys: FormKeys) -> None:
    ids = {keys.issue("order", "session-7").split(".")[1] for _ in range(1000)}

    assert len(ids) == 1000
    # 128 random bits: nobody guesses one.
    assert {len(one) for one in ids} == {22}


def test_h220_a_key_does_not_give_the_session_away(keys: FormKeys) -> None:
    assert "session-7" not in keys.issue("order", "session-7")


def test_h220_keys_of_one_session_share_their_scope_and_others_do_not(keys: FormKeys) -> None:
    def scope(form: str, session: str) -> str:
        found = keys.check(keys.issue(form, session), form, session)
        assert isinstance(found, FormKey)
        return found.scope

    assert scope("order", "a") == scope("order", "a")
    assert len({scope("order", "a"), scope("order", "b"), scope("refund", "a")}) == 3


def test_a_key_fits_into_a_header(keys: FormKeys) -> None:
    key = keys.issue("f" * 64, "session-7" * 1000)

    assert len(key) <= 255
    assert re.fullmatch(r"[A-Za-z0-9._-]+", key)


def test_h224_a_key_of_another_session_is_refused(keys: FormKeys) -> None:
    assert keys.check(keys.issue("order", "a"), "order", "b") == RefusedKey("other session")


def test_h224_a_key_of_another_form_is_refused(keys: FormKeys) -> None:
    assert keys.check(keys.issue("order", "a"), "refund", "a") == RefusedKey("other form")


@pytest.mark.parametrize(
    "text",
    ["", ".", "1", "1.2.3.4.5.6", "....", "1.a.order.b.Z.\udc80", "ü.ö", "\x00", "1." * 10_000],
)
def test_h225_what_nobody_signed_is_refused(keys: FormKeys, text: str) -> None:
    assert keys.check(text, "order", "a") == RefusedKey("forged")


def test_h225_a_key_with_another_id_is_refused(keys: FormKeys) -> None:
    version, _, *rest = keys.issue("order", "a").split(".")
    forged = ".".join([version, "A" * 22, *rest])

    assert keys.check(forged, "order", "a") == RefusedKey("forged")


def test_h225_a_key_under_another_secret_is_refused(keys: FormKeys, clock: Clock) -> None:
    others = FormKeys("another secret, as long as ours", clock=clock)

    assert keys.check(others.issue("order", "a"), "order", "a") == RefusedKey("forged")


@given(st.integers(min_value=0), st.characters(codec="utf-8"))
def test_h225_no_changed_character_makes_another_key(place: int, character: str) -> None:
    keys = FormKeys(SECRET)
    key = keys.issue("order", "a")
    place %= len(key)
    changed = key[:place] + character + key[place + 1 :]

    found = keys.check(changed, "order", "a")

    # The last bits of base64 mean nothing, so a signature has a few spellings: of one key.
    assert found == RefusedKey("forged") or found == keys.check(key, "order", "a")


def test_h225_a_key_is_good_for_a_day(keys: FormKeys, clock: Clock) -> None:
    key = keys.issue("order", "a")

    clock.advance(timedelta(hours=24))

    assert isinstance(keys.check(key, "order", "a"), FormKey)


def test_h225_a_key_is_expired_after_a_day(keys: FormKeys, clock: Clock) -> None:
    key = keys.issue("order", "a")

    clock.advance(timedelta(hours=24, seconds=1))
    found = keys.check(key, "order", "a")

    assert found == RefusedKey("expired")


def test_a_key_of_a_server_whose_clock_is_a_little_ahead_is_accepted(keys: FormKeys) -> None:
    ahead = FormKeys(SECRET, clock=Clock(Clock().now + SKEW))

    assert isinstance(keys.check(ahead.issue("order", "a"), "order", "a"), FormKey)


def test_a_key_from_the_future_is_refused(keys: FormKeys) -> None:
    ahead = FormKeys(SECRET, clock=Clock(Clock().now + SKEW + timedelta(seconds=1)))

    assert keys.check(ahead.issue("order", "a"), "order", "a") == RefusedKey("expired")


def test_an_outcome_is_remembered_for_longer_than_its_key_is_accepted() -> None:
    keys = FormKeys(SECRET, max_age=timedelta(minutes=10))

    assert keys.retention == timedelta(minutes=20)


def test_a_key_is_good_after_its_secret_was_retired(keys: FormKeys, clock: Clock) -> None:
    key = keys.issue("order", "a")
    renewed = FormKeys("a new secret of some length", retired=[SECRET], clock=clock)

    before, after = keys.check(key, "order", "a"), renewed.check(key, "order", "a")

    assert isinstance(before, FormKey)
    assert before == after


def test_what_signs_is_the_secret_that_is_not_retired(keys: FormKeys, clock: Clock) -> None:
    renewed = FormKeys("a new secret of some length", retired=[SECRET], clock=clock)

    key = renewed.issue("order", "a")

    assert isinstance(renewed.check(key, "order", "a"), FormKey)
    assert keys.check(key, "order", "a") == RefusedKey("forged")


def test_a_key_of_a_later_version_is_not_guessed_at(
    keys: FormKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.web.forms.form_keys.VERSION", "2")
    key = keys.issue("order", "a")
    monkeypatch.undo()

    assert keys.check(key, "order", "a") == RefusedKey("unknown version")


def test_the_machines_clock_is_the_default() -> None:
    keys = FormKeys(SECRET)

    found = keys.check(keys.issue("order", "a"), "order", "a")

    assert isinstance(found, FormKey)
    assert abs(found.issued_at - datetime.now(UTC)) < timedelta(minutes=1)


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


def test_retired_secrets_are_a_list() -> None:
    with pytest.raises(InvalidInput, match=r"retired must be a list of secrets"):
        FormKeys(SECRET, retired=SECRET)


def test_an_age_is_longer_than_nothing() -> None:
    with pytest.raises(InvalidInput, match=r"max_age must be longer than zero"):
        FormKeys(SECRET, max_age=timedelta(0))


def test_no_secret_is_shown(keys: FormKeys) -> None:
    assert SECRET not in repr(keys)
