"""API keys as values: what they look like, what they prove, and what they never show."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onefold import InvalidInput, NewApiKey, Rate
from onefold.model.api_key import (
    Shown,
    from_row,
    key_id,
    key_name,
    key_scopes,
    key_tenant,
    known_from_row,
    new_key,
    proven,
    read_text,
)
from onefold.operations.api_keys import (
    NewApiKeyRow,
    are_any,
    charge,
    create,
    find,
    home_of,
    read,
    revoke,
)
from onefold.operations.statement import Sql
from tests.fixtures.rows import NOW
from tests.fixtures.steps import Steps

SECOND = 1_000_000
SQL = Sql("postgres")
SPREAD = Sql("postgres", shards=4)
DISTRIBUTED = Sql("postgres", shards=4, distributed=True)


def row(key: str, *, expires_at: int | None = None, revoked_at: int | None = None) -> Any:
    """A row of find_api_keys."""
    return (key, "acme", "web", "work publish", 10, SECOND, NOW, expires_at, revoked_at)


def test_a_key_has_an_id_to_find_it_and_a_secret_of_256_bits() -> None:
    text, stored = new_key()

    assert re.fullmatch(r"of_[a-z2-7]{16}_[0-9A-Za-z]{43}", text)
    assert read_text(text) == stored
    assert re.fullmatch(r"[0-9a-f]{64}", stored.digest)
    assert text.rpartition("_")[2] not in repr(stored)


def test_no_two_keys_are_alike() -> None:
    made = [new_key() for _ in range(100)]

    assert len({text for text, _ in made}) == 100
    assert len({stored.id for _, stored in made}) == 100


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


def test_a_key_counts_with_its_own_secret_while_it_lives() -> None:
    _, stored = new_key()
    other = Shown(stored.id, new_key()[1].digest)
    live = known_from_row((*row(stored.id), stored.digest, NOW))
    until = known_from_row((*row(stored.id, expires_at=NOW + 1), stored.digest, NOW))
    expired = known_from_row((*row(stored.id, expires_at=NOW), stored.digest, NOW))
    revoked = known_from_row((*row(stored.id, revoked_at=NOW - 1), stored.digest, NOW))

    assert proven(stored, live) == live.key
    assert proven(stored, until) == until.key
    assert proven(stored, expired) is None
    assert proven(stored, revoked) is None
    assert proven(other, live) is None
    assert proven(stored, None) is None


def test_an_unknown_key_has_no_digest_that_somebody_could_show() -> None:
    assert proven(Shown("a" * 16, "0" * 64), None) is None


def test_a_row_becomes_a_key() -> None:
    key = from_row(row("a" * 16, expires_at=NOW + 1, revoked_at=NOW + 2))
    plain = from_row(("a" * 16, "", "", "admin", None, None, NOW, None, None))

    assert key.scopes == ("publish", "work")
    assert key.rate == Rate(10, timedelta(seconds=1))
    assert key.expires_at is not None
    assert key.revoked_at is not None
    assert key.revoked_at - key.expires_at == timedelta(microseconds=1)
    assert (plain.rate, plain.expires_at, plain.revoked_at) == (None, None, None)
    assert plain.created_at > datetime(2020, 1, 1, tzinfo=UTC)


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


def test_a_key_is_stored_by_its_digest_alone() -> None:
    text, stored = new_key()
    run = Steps(
        create(
            SPREAD,
            NewApiKeyRow(
                shown=stored,
                tenant="acme",
                name="web",
                scopes=("publish", "work"),
                rate=(10, SECOND),
                expires_in=None,
            ),
        )
    )

    asked = run.answer("insert_api_key", [row(stored.id)])

    assert asked.parameters["shard"] == home_of(SPREAD, stored.id)
    assert asked.parameters["scopes"] == "publish work"
    assert text.rpartition("_")[2] not in repr(asked)
    assert run.result == from_row(row(stored.id))


def test_keys_are_listed_from_the_oldest_on_over_all_shards() -> None:
    """In one statement, or with Citus in one for each shard."""
    at_once, singly = Steps(find(SPREAD, None)), Steps(find(DISTRIBUTED, None))
    old, new = list(row(A)), list(row(B))
    old[6] -= 1

    at_once.answer("find_api_keys", [new, tuple(old)])
    for rows in ([new], [], [tuple(old)], []):
        singly.answer("find_api_keys", rows)

    assert [key.id for key in at_once.result] == [A, B]
    assert [key.id for key in singly.result] == [A, B]


def test_the_first_shard_with_a_key_is_enough() -> None:
    some, none = Steps(are_any(SPREAD)), Steps(are_any(SQL))

    some.answer("has_api_keys")
    some.answer("has_api_keys", [(1,)])
    none.answer("has_api_keys")

    assert some.result is True
    assert none.result is False


def test_a_key_that_is_not_there_cannot_be_revoked() -> None:
    there, gone = Steps(revoke(SQL, A)), Steps(revoke(SQL, A))

    there.answer("revoke_api_key", [(A,)])
    gone.answer("revoke_api_key")

    assert there.result is True
    assert gone.result is False


def test_keys_are_read_once_however_often_they_are_shown() -> None:
    run = Steps(read(SQL, [B, A, B, C]))

    asked = run.answer("read_api_keys", [(*row(A), "a", NOW), (*row(B), "b", NOW)])

    assert asked.rows == [(0, A), (0, B), (0, C)]
    assert [None if known is None else known.digest for known in run.result] == [
        "b", "a", "b", None,
    ]  # fmt: skip


def test_each_shard_is_asked_for_its_own_keys() -> None:
    ids = [new_key()[1].id for _ in range(20)]
    run = Steps(read(SPREAD, ids))
    shards = sorted({home_of(SPREAD, one) for one in ids})

    for shard in shards:
        asked = run.answer("read_api_keys")
        assert {place for place, _ in asked.rows} == {shard}

    assert run.result == [None] * 20


def test_a_shard_that_has_none_of_them_is_not_asked() -> None:
    run = Steps(read(SPREAD, [A]))

    asked = run.answer("read_api_keys")

    assert asked.rows == [(home_of(SPREAD, A), A)]
    assert run.result == [None]


def test_a_charge_grants_what_is_left_and_tells_the_rest_to_wait() -> None:
    run = Steps(charge(SQL, [A, A, B, A, C]))
    tenth = SECOND // 10
    nearly = NOW + 8 * tenth

    run.answer("lock_api_keys", [(A, 10, SECOND, nearly, NOW), (B, 10, SECOND, 0, NOW)])
    saved = run.answer("save_api_key_rates")

    assert saved.rows == [(0, A, NOW + SECOND), (0, B, NOW + tenth)]
    # C has lost its rate since it was looked up.
    assert run.result == [0, 0, 0, tenth, 0]


def test_a_charge_of_what_is_used_up_writes_nothing() -> None:
    run = Steps(charge(SQL, [A]))

    run.answer("lock_api_keys", [(A, 10, SECOND, NOW + SECOND, NOW)])

    assert run.result == [SECOND // 10]


def test_a_bucket_of_another_clock_is_no_emptier_than_empty() -> None:
    run = Steps(charge(SQL, [A]))

    run.answer("lock_api_keys", [(A, 10, SECOND, NOW + 3600 * SECOND, NOW)])

    assert run.result == [SECOND // 10]
