"""A new job made ready to be stored: what decides its shard, and what is compared with it later."""

from datetime import UTC, datetime, timedelta
from typing import Any

from onefold import NewJob, Unique
from onefold.model.claim import ClaimKey
from onefold.model.ids import hash12, hash_of
from onefold.model.new_job import Prepared, prepare
from onefold.model.unique import request_fingerprint

NOW = 1_772_366_400_000_000
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def prepared(**options: Any) -> Prepared:
    return prepare(NewJob("email", **options), "acme", now=NOW)


def test_the_id_carries_the_hash_of_the_key_that_decides_the_shard() -> None:
    """Stored jobs are where it says: another hash would lose them."""
    plain = prepared(unique_key="k", idempotency_key="p").request
    common = prepared(unique_key="k", across_kinds=True).request
    published = prepared(idempotency_key="p", queue="mail").request

    assert hash_of(plain.id) == hash12("acme", "email", "k")
    assert hash_of(common.id) == hash12("acme", "", "k")
    assert hash_of(published.id) == hash12("acme", "publish", "mail", "p")


def test_fingerprints_are_those_of_stored_jobs_and_publish_keys() -> None:
    unique = prepared(unique_key="k", payload={"a": 1}, queue="mail").request
    item = prepared(idempotency_key="p", queue="mail", payload={"a": 1})

    assert unique.fingerprint == request_fingerprint("email", payload={"a": 1})
    assert item.publish is not None
    assert item.publish.key == ClaimKey("acme", "publish", "mail", "p")
    assert item.publish.fingerprint == request_fingerprint("email", "mail", payload={"a": 1})
    assert item.request.fingerprint is None


def test_a_bucket_is_decided_by_the_given_clock() -> None:
    rule = Unique(bucket=timedelta(hours=1))

    keys = [
        prepare(NewJob("email", unique=rule), "", now=now).request.unique_key
        for now in (NOW, NOW + 1, NOW + 3_600_000_000)
    ]

    assert keys[0] == keys[1] == rule.key("email", {}, now=AT)
    assert keys[2] != keys[0]


def test_a_rule_may_be_a_function_in_a_unique() -> None:
    rule = Unique(key=lambda kind, payload: f"{kind}/{payload['n']}")

    assert prepared(payload={"n": 7}, unique=rule).request.unique_key == "email/7"
