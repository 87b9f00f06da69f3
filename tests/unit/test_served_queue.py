"""Queues as the server has them: what may be said about them, and how it is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onefold.errors import InvalidInput
from onefold.model.checks import shown
from onefold.model.lifecycle import Retention
from onefold.model.queue import (
    QueueSettings,
    SigningSecret,
    checked,
    new_secret,
)
from onefold.model.retry import Fixed

MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)
WHOLE = QueueSettings(
    endpoint="http://127.0.0.1:8080/hook?a=b",
    mode="ack",
    max_attempts=1,
    backoff=Fixed(timedelta(seconds=5)),
    timeout=timedelta(seconds=0.5),
    ack_timeout=timedelta(days=1),
    ack_timeout_action="dead",
    concurrency=7,
    rate_limit="10/30s",
    retention=Retention(completed=timedelta(hours=1), cancelled=timedelta(0)),
    signing_secret=new_secret(),
    previous_secrets=(SigningSecret(new_secret(), MOMENT),),
    headers={"Authorization": "Bearer x"},
    paused_reason="closed",
)


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
        ("timeout", timedelta(0)),
        ("timeout", timedelta(seconds=901)),
        ("timeout", 15),
        ("ack_timeout", timedelta(seconds=0.5)),
        ("ack_timeout", timedelta(days=31)),
        ("paused", 1),
        ("backoff", "exponential"),
        ("retention", 7),
        ("concurrency", 0),
        ("rate_limit", "often"),
        ("signing_secret", "whsec_" + "A" * 31),
        ("signing_secret", "whsec_" + "A" * 89),
        ("signing_secret", "A" * 32),
        ("previous_secrets", ["whsec_"]),
        ("previous_secrets", (SigningSecret(new_secret()),) * 10),
        ("previous_secrets", (("whsec_" + "A" * 32, None),)),
        ("previous_secrets", (SigningSecret("A" * 32),)),
        ("previous_secrets", (SigningSecret(new_secret()),)),
        ("previous_secrets", (SigningSecret(new_secret(), datetime(2026, 3, 1)),)),  # noqa: DTZ001 - it is naive
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
        checked(QueueSettings(**wrong))

    assert caught.value.field == setting


def test_a_made_secret_can_be_used_and_is_not_shown() -> None:
    secret = new_secret()

    checked(QueueSettings(signing_secret=secret))
    assert secret != new_secret()
    shown = repr(msgspec.structs.replace(WHOLE, signing_secret=secret))
    assert secret not in shown
    assert "Bearer" not in shown


def test_the_queue_of_another_is_shown_as_the_engine_has_it() -> None:
    assert shown("acme", "{other}payments") == "{other}payments"
    assert shown("", "{other}payments") == "{other}payments"


def test_anything_else_is_no_configuration() -> None:
    wrong: Any = {"endpoint": "https://example.com"}
    with pytest.raises(InvalidInput, match="settings must be QueueSettings"):
        checked(wrong)
