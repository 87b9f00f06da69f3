"""API keys as values: what they look like, what they prove, and what they never show."""

import re
from typing import Any

import pytest

from onefold import InvalidInput, NewApiKey
from onefold.model.api_key import (
    from_row,
    key_id,
    key_name,
    key_scopes,
    key_tenant,
    new_key,
    read_text,
)
from onefold.operations.api_keys import (
    charge,
)
from onefold.operations.statement import Sql
from tests.fixtures.rows import NOW
from tests.fixtures.steps import Steps

SECOND = 1_000_000
SQL = Sql("postgres")


def row(key: str, *, expires_at: int | None = None, revoked_at: int | None = None) -> Any:
    """A row of find_api_keys."""
    return (key, "acme", "web", "work publish", 10, SECOND, NOW, expires_at, revoked_at)


def test_a_key_has_an_id_to_find_it_and_a_secret_of_256_bits() -> None:
    text, stored = new_key()

    assert re.fullmatch(r"of_[a-z2-7]{16}_[0-9A-Za-z]{43}", text)
    assert read_text(text) == stored
    assert re.fullmatch(r"[0-9a-f]{64}", stored.digest)
    assert text.rpartition("_")[2] not in repr(stored)


ID, SECRET = "k3v6w2qz5x7n4m2a", "0aZ" * 14 + "9"


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"of_{ID}_{SECRET[:-1]}",
        f"of_{ID}_{SECRET}a",
        f"OF_{ID.upper()}_{SECRET}",
        f" of_{ID}_{SECRET}",
        f"of_{ID}_{SECRET}\n",
        f"ok_{ID}_{SECRET}",
        f"of_{ID}_{SECRET[:-1]}é",
        f"of_{ID}_{SECRET[:-1]}\0",
        f"of_1{ID}_{SECRET}",
    ],
)
def test_what_is_no_key_is_not_looked_up(text: str) -> None:
    assert read_text(f"of_{ID}_{SECRET}") is not None
    assert read_text(text) is None


def test_a_new_key_is_printed_without_its_secret() -> None:
    text, stored = new_key()
    new = NewApiKey(from_row(row(stored.id)), text)

    for shown in (repr(new), str(new), f"{new}"):
        assert text not in shown
        assert text.rpartition("_")[2] not in shown
        assert stored.id in shown


# --- what is refused ------------------------------------------------------------------------------


def test_an_id_is_read_from_a_whole_key_too() -> None:
    text, stored = new_key()

    assert key_id(stored.id) == key_id(f"of_{stored.id}") == key_id(text) == stored.id


@pytest.mark.parametrize("value", ["", "of_", "A" * 16, "a" * 15, "a" * 16 + "_short", None, 7])
def test_what_is_no_id_is_refused_without_being_shown(value: Any) -> None:
    with pytest.raises(InvalidInput, match="must be the id of an API key") as refused:
        key_id(value)

    assert "got" not in str(refused.value)


@pytest.mark.parametrize("value", ["", "acme", "7", "a.b-c_d", "a" * 64])
def test_a_tenant_is_a_plain_word_or_nobody_in_particular(value: str) -> None:
    assert key_tenant(value) == value


@pytest.mark.parametrize("value", ["Acme", "-a", ".a", "a b", "{a}", "a/b", "é", "a" * 65, None, 7])
def test_another_tenant_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="tenant"):
        key_tenant(value)


def test_scopes_are_sorted_and_said_once() -> None:
    assert key_scopes(["work", "publish", "work"]) == ("publish", "work")
    assert key_scopes("admin") == ("admin",)
    assert key_scopes({"admin"}) == ("admin",)


@pytest.mark.parametrize(
    "value", [[], "", "write", ["publish", "write"], None, 7, [None], [["work"]]]
)
def test_other_scopes_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="must be some of read, publish, work, admin"):
        key_scopes(value)


def test_a_name_is_text_of_some_length() -> None:
    assert key_name("Checkout é") == "Checkout é"
    for wrong in ("a" * 201, "a\0", None):
        with pytest.raises(InvalidInput, match="name"):
            key_name(wrong)


# --- operations, stepped by hand ------------------------------------------------------------------

A, B, C = sorted(new_key()[1].id for _ in range(3))


def test_a_charge_grants_what_is_left_and_tells_the_rest_to_wait() -> None:
    run = Steps(charge(SQL, [A, A, B, A, C]))
    tenth = SECOND // 10
    nearly = NOW + 8 * tenth

    run.answer("lock_api_keys", [(A, 10, SECOND, nearly, NOW), (B, 10, SECOND, 0, NOW)])
    saved = run.answer("save_api_key_rates")

    assert saved.rows == [(0, A, NOW + SECOND), (0, B, NOW + tenth)]
    # C has lost its rate since it was looked up.
    assert run.result == [0, 0, 0, tenth, 0]


def test_a_bucket_of_another_clock_is_no_emptier_than_empty() -> None:
    run = Steps(charge(SQL, [A]))

    run.answer("lock_api_keys", [(A, 10, SECOND, NOW + 3600 * SECOND, NOW)])

    assert run.result == [SECOND // 10]
