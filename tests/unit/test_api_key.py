"""API keys as values: what they look like, what they prove, and what they never show."""

import re
from collections.abc import Callable
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
from onefold.operations.api_keys import charge
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


def test_a_new_key_is_printed_without_its_secret_and_its_id_is_read_from_it() -> None:
    text, stored = new_key()
    new = NewApiKey(from_row(row(stored.id)), text)

    for shown in (repr(new), str(new), f"{new}"):
        assert text not in shown
        assert text.rpartition("_")[2] not in shown
        assert stored.id in shown
    assert key_id(stored.id) == key_id(f"of_{stored.id}") == key_id(text) == stored.id


# --- what is refused ------------------------------------------------------------------------------


REFUSED: list[tuple[Callable[[Any], object], str, list[Any]]] = [
    (
        key_id,
        "must be the id of an API key",
        ["", "of_", "A" * 16, "a" * 15, "a" * 16 + "_short", None, 7],
    ),
    (key_tenant, "tenant", ["Acme", "-a", ".a", "a b", "{a}", "a/b", "é", "a" * 65, None, 7]),
    (
        key_scopes,
        "must be some of read, publish, work, admin",
        [[], "", "write", ["publish", "write"], None, 7, [None], [["work"]]],
    ),
    (key_name, "name", ["a" * 201, "a\0", None]),
]


@pytest.mark.parametrize(("read", "sentence", "values"), REFUSED)
def test_what_cannot_be_is_refused(
    read: Callable[[Any], object], sentence: str, values: list[Any]
) -> None:
    for value in values:
        with pytest.raises(InvalidInput, match=sentence) as refused:
            read(value)
        assert read is not key_id or "got" not in str(refused.value), "a key is not shown"


def test_what_can_be_is_read() -> None:
    for tenant in ("", "acme", "7", "a.b-c_d", "a" * 64):
        assert key_tenant(tenant) == tenant
    assert key_scopes(["work", "publish", "work"]) == ("publish", "work")
    assert key_scopes("admin") == key_scopes({"admin"}) == ("admin",)
    assert key_name("Checkout é") == "Checkout é"


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
