"""Queues as the server has them: what may be said about them, and how it is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onefold.errors import InvalidInput
from onefold.model.checks import qualified, shown, without_tenant
from onefold.model.lifecycle import Retention
from onefold.model.limit import Limit
from onefold.model.queue import (
    QueueConfiguration,
    QueueCounts,
    SigningSecret,
    checked,
    encode_configuration,
    new_secret,
    read_configuration,
)
from onefold.model.retry import Fixed

MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)
WHOLE = QueueConfiguration(
    endpoint="http://127.0.0.1:8080/hook?a=b",
    mode="ack",
    max_attempts=1,
    backoff=Fixed(timedelta(seconds=5)),
    timeout=0.5,
    ack_timeout=86_400,
    ack_timeout_action="dead",
    concurrency=7,
    rate="10/30s",
    retention=Retention(completed=timedelta(hours=1), cancelled=timedelta(0)),
    secrets=(new_secret(), SigningSecret(new_secret().text, MOMENT)),
    headers={"Authorization": "Bearer x"},
    paused_reason="closed",
)


@pytest.mark.parametrize("configuration", [QueueConfiguration(), WHOLE], ids=["least", "most"])
def test_what_was_said_is_read_again(configuration: QueueConfiguration) -> None:
    text = encode_configuration(checked(configuration))

    assert read_configuration(text) == configuration


def test_what_was_not_said_is_not_stored() -> None:
    assert encode_configuration(QueueConfiguration()) == "{}"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("endpoint", ""),
        ("endpoint", 7),
        ("endpoint", "example.com"),
        ("endpoint", "ftp://example.com"),
        ("endpoint", "https://"),
        ("endpoint", "https://[::1"),
        ("endpoint", "https://example.com:99999/"),
        ("endpoint", "https://user:secret@example.com/"),
        ("endpoint", "https://example.com/#part"),
        ("endpoint", "https://example.com/a b"),
        ("endpoint", "https://exämple.com/"),
        ("endpoint", "https://example.com/\n"),
        ("endpoint", "https://example.com/" + "a" * 2_048),
        ("mode", "push"),
        ("ack_timeout_action", "bury"),
        ("max_attempts", 0),
        ("max_attempts", 101),
        ("max_attempts", True),
        ("timeout", 0),
        ("timeout", 901),
        ("timeout", "15"),
        ("timeout", float("nan")),
        ("ack_timeout", 0.5),
        ("ack_timeout", True),
        ("backoff", "exponential"),
        ("retention", 7),
        ("concurrency", 0),
        ("rate", "often"),
        ("secrets", ["whsec_"]),
        ("secrets", (new_secret(),) * 11),
        ("secrets", (("whsec_" + "A" * 32, None),)),
        ("secrets", (SigningSecret("whsec_" + "A" * 31),)),
        ("secrets", (SigningSecret("whsec_" + "A" * 89),)),
        ("secrets", (SigningSecret("A" * 32),)),
        ("secrets", (SigningSecret(new_secret().text, datetime(2026, 3, 1)),)),  # noqa: DTZ001 - it is naive
        ("headers", [("a", "b")]),
        ("headers", {f"X-{number}": "" for number in range(51)}),
        ("headers", {"a b": "c"}),
        ("headers", {7: "c"}),
        ("headers", {"X": "a\r\nb"}),
        ("headers", {"X": "ä"}),
        ("headers", {"X": 7}),
        ("headers", {"X": "a" * 8_193}),
        ("headers", {"Webhook-Id": "c"}),
        ("headers", {"content-length": "c"}),
        ("paused_reason", 7),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_its_name(setting: str, value: Any) -> None:
    wrong: Any = {setting: value}
    with pytest.raises(InvalidInput) as caught:
        checked(QueueConfiguration(**wrong))

    assert caught.value.field == setting


def test_anything_else_is_no_configuration() -> None:
    wrong: Any = {"endpoint": "https://example.com"}
    with pytest.raises(InvalidInput, match="configuration must be a QueueConfiguration"):
        checked(wrong)


def test_a_limit_is_what_the_engine_keeps_to() -> None:
    assert QueueConfiguration().limit is None
    assert WHOLE.limit == Limit(concurrency=7, rate="10/30s")


def test_a_made_secret_can_be_used_and_is_not_shown() -> None:
    secret = new_secret()

    checked(QueueConfiguration(secrets=(secret,)))
    assert secret != new_secret()
    assert secret.text not in repr(msgspec.structs.replace(WHOLE, secrets=(secret,)))


@pytest.mark.parametrize("tenant", ["", "acme", "a.b"])
def test_a_name_is_told_as_it_was_given(tenant: str) -> None:
    queue = qualified(tenant, "payments")

    assert (queue == "payments") == (not tenant)
    assert shown(tenant, queue) == "payments"
    assert without_tenant(queue) == "payments"


def test_the_queue_of_another_is_shown_as_the_engine_has_it() -> None:
    assert shown("acme", "{other}payments") == "{other}payments"
    assert shown("", "{other}payments") == "{other}payments"


def test_counts_of_shards_are_added() -> None:
    assert QueueCounts(1, 2, 3, 4, 5).plus(QueueCounts(10, 20, 30, 40, 50)) == QueueCounts(
        11, 22, 33, 44, 55
    )
