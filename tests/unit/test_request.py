"""A new job made ready to be stored, or refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onefold import Exponential, InvalidInput, NewJob, Retention, Unique
from onefold.model.claim import ClaimKey
from onefold.model.ids import hash12, hash_of, shard_of
from onefold.model.job_options import backoff_of, read_options
from onefold.model.new_job import (
    Prepared,
    placed,
    prepare,
    prepare_all,
)
from onefold.model.unique import request_fingerprint

NOW = 1_772_366_400_000_000
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def prepared(**options: Any) -> Prepared:
    return prepare(NewJob("email", **options), "acme", now=NOW)


def test_a_bare_job_has_the_defaults_and_no_key() -> None:
    item = prepared(payload={"to": 42})

    assert item.publish is None
    assert item.request_id is None
    assert item.request.unique is None
    assert msgspec.structs.asdict(item.request) == {
        "id": item.request.id,
        "shard": 0,
        "tenant": "acme",
        "queue": "default",
        "kind": "email",
        "priority": 0,
        "run_at": None,
        "delay": 0,
        "max_attempts": 8,
        "payload": '{"to":42}',
        "fingerprint": None,
        "unique_kind": None,
        "unique_key": None,
        "unique_states": 0,
        "unique_for": None,
        "expires_at": None,
        "options": None,
        "group_key": None,
        "unique_until": None,
    }


def test_times_are_stored_in_microseconds() -> None:
    request = prepared(run_at=AT, expires_at=AT + SECOND).request

    assert (request.run_at, request.expires_at) == (NOW, NOW + 1_000_000)
    assert prepared(delay=SECOND).request.delay == 1_000_000


# --- unique keys ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "states", "window"),
    [
        ({}, 0b00011, None),
        ({"unique_while": "queued"}, 0b00001, None),
        ({"unique_while": "active"}, 0b00011, None),
        ({"unique_while": "exists"}, 0b11111, None),
        ({"unique_for": SECOND}, 0, 1_000_000),
        ({"unique_for": SECOND, "unique_while": "queued"}, 0b00001, 1_000_000),
        ({"unique_for": SECOND, "unique_while": "exists"}, 0b11111, 1_000_000),
    ],
)
def test_a_scope_is_a_set_of_states_and_a_window(
    options: dict[str, Any], states: int, window: int | None
) -> None:
    request = prepared(unique_key="k", **options).request

    assert (request.unique_states, request.unique_for) == (states, window)


def test_the_id_carries_the_hash_of_the_unique_key() -> None:
    plain = prepared(unique_key="k", idempotency_key="p").request
    common = prepared(unique_key="k", across_kinds=True).request

    assert hash_of(plain.id) == hash12("acme", "email", "k")
    assert hash_of(common.id) == hash12("acme", "", "k")


def test_without_a_unique_key_the_id_carries_the_hash_of_the_publish_key() -> None:
    request = prepared(idempotency_key="p", queue="mail").request

    assert hash_of(request.id) == hash12("acme", "publish", "mail", "p")


def test_a_rule_derives_the_key_from_the_payload() -> None:
    payload = {"to": "a@b.c", "at": 1}
    rule = Unique("to")

    assert prepared(payload=payload, unique=rule).request.unique_key == rule.key("email", payload)
    assert prepared(payload=payload, unique=upper_case).request.unique_key == "EMAIL:a@b.c"


def upper_case(kind: str, payload: Any) -> str:
    return f"{kind.upper()}:{payload['to']}"


def test_a_bucket_is_decided_by_the_given_clock() -> None:
    rule = Unique(bucket=timedelta(hours=1))

    keys = [
        prepare(NewJob("email", unique=rule), "", now=now).request.unique_key
        for now in (NOW, NOW + 1, NOW + 3_600_000_000)
    ]

    assert keys[0] == keys[1] == rule.key("email", {}, now=AT)
    assert keys[2] != keys[0]


def test_the_fingerprint_of_a_unique_key_is_of_kind_and_payload() -> None:
    request = prepared(unique_key="k", payload={"a": 1}, queue="mail").request

    assert request.fingerprint == request_fingerprint("email", payload={"a": 1})


# --- publish keys ---------------------------------------------------------------------------------


def test_a_publish_key_is_per_tenant_and_queue_and_remembers_the_whole_request() -> None:
    item = prepared(idempotency_key="p", queue="mail", payload={"a": 1})

    assert item.publish is not None
    assert item.publish.key == ClaimKey("acme", "publish", "mail", "p")
    assert item.publish.fingerprint == request_fingerprint("email", "mail", payload={"a": 1})
    assert item.publish.keep == 24 * 3_600_000_000
    assert item.request.fingerprint is None


def test_a_request_id_goes_beside_the_job() -> None:
    item = prepared(request_id="r-1")

    assert (item.publish, item.request_id) == (None, "r-1")


# --- settings -------------------------------------------------------------------------------------


def test_backoff_and_retention_are_stored_as_one_text() -> None:
    backoff = Exponential(base=SECOND, factor=3)
    text = prepared(
        backoff=backoff, retention=Retention(completed=timedelta(0), dead=SECOND)
    ).request.options

    stored = read_options(text)

    assert backoff_of(stored) == backoff
    assert stored.keep == {"completed": 0, "dead": 1_000_000}


# --- what is refused ------------------------------------------------------------------------------


def test_a_field_of_a_key_that_an_item_does_not_have_is_named_with_the_item() -> None:
    rule = Unique("to")
    jobs = [NewJob("email", {"to": 1}, unique=rule), NewJob("email", {"too": 1}, unique=rule)]

    with pytest.raises(InvalidInput, match=r"item 1: unique names 'to', .*'email'.* has 'too'"):
        prepare_all(jobs, "", now=NOW)


# --- shards ---------------------------------------------------------------------------------------


def test_on_several_shards_an_item_goes_where_its_id_says() -> None:
    items = [prepared(unique_key=f"k{number}") for number in range(20)]

    moved = placed(items, 4)

    assert [item.request.shard for item in moved] == [
        shard_of(item.request.id, 4) for item in items
    ]
    assert {item.request.shard for item in moved} == {0, 1, 2, 3}
    assert [item.request.id for item in moved] == [item.request.id for item in items]


def test_what_is_no_new_job_is_refused() -> None:
    jobs: list[Any] = [{"kind": "email"}]

    with pytest.raises(InvalidInput, match=r"item 0: job must be a NewJob, got \{'kind': 'email'}"):
        prepare_all(jobs, "", now=NOW)


@pytest.mark.parametrize("field", ["kind", "queue", "priority", "max_attempts"])
def test_what_cannot_even_be_hashed_is_refused_by_name(field: str) -> None:
    options: dict[str, Any] = {"kind": "email", field: ["a", "list"]}

    with pytest.raises(InvalidInput) as caught:
        prepare(NewJob(**options), "", now=0)

    assert caught.value.field == field
