"""Queues as the server has them: what may be said about them, and what is never shown."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from onefold.errors import InvalidInput
from onefold.model.checks import shown
from onefold.model.queue import QueueSettings, SigningSecret, checked, new_secret

REFUSED: dict[str, list[Any]] = {
    "endpoint": [
        "", 7, "example.com", "ftp://example.com", "https://", "https://[::1",
        "https://example.com:99999/", "https://user:secret@example.com/",
        "https://example.com/#part", "https://example.com/a b", "https://exämple.com/",
        "https://example.com/\n", "https://example.com/" + "a" * 2_048,
    ],
    "mode": ["push"],
    "ack_timeout_action": ["bury"],
    "max_attempts": [0, 101, True],
    "timeout": [timedelta(0), timedelta(seconds=901), 15],
    "ack_timeout": [timedelta(seconds=0.5), timedelta(days=31)],
    "paused": [1],
    "backoff": ["exponential"],
    "retention": [7],
    "concurrency": [0],
    "rate_limit": ["often"],
    "signing_secret": ["whsec_" + "A" * 31, "whsec_" + "A" * 89, "A" * 32],
    "previous_secrets": [
        ["whsec_"],
        (SigningSecret(new_secret()),) * 10,
        (("whsec_" + "A" * 32, None),),
        (SigningSecret("A" * 32),),
        (SigningSecret(new_secret()),),
        (SigningSecret(new_secret(), datetime(2026, 3, 1)),),  # noqa: DTZ001 - it is naive
    ],
    "headers": [
        [("a", "b")], {f"X-{number}": "" for number in range(51)}, {"a b": "c"}, {7: "c"},
        {"X": "a\r\nb"}, {"X": "ä"}, {"X": 7}, {"X": "a" * 8_193}, {"Webhook-Id": "c"},
        {"content-length": "c"},
    ],
    "paused_reason": [7],
}  # fmt: skip


@pytest.mark.parametrize("setting", REFUSED)
def test_what_cannot_be_is_refused_by_its_name(setting: str) -> None:
    for value in REFUSED[setting]:
        wrong: Any = {setting: value}
        with pytest.raises(InvalidInput) as caught:
            checked(QueueSettings(**wrong))
        assert caught.value.field == setting, value


def test_anything_else_is_no_configuration() -> None:
    wrong: Any = {"endpoint": "https://example.com"}
    with pytest.raises(InvalidInput, match="settings must be QueueSettings"):
        checked(wrong)


def test_a_made_secret_can_be_used_and_is_not_shown() -> None:
    secret, before = new_secret(), SigningSecret(new_secret())
    settings = QueueSettings(
        signing_secret=secret,
        previous_secrets=(before,),
        headers={"Authorization": "Bearer x"},
    )

    checked(QueueSettings(signing_secret=secret))
    assert secret != before.secret
    for text in (repr(settings), repr(before)):
        assert secret not in text
        assert before.secret not in text
        assert "Bearer" not in text


def test_the_queue_of_another_is_shown_as_the_engine_has_it() -> None:
    assert shown("acme", "{other}payments") == "{other}payments"
    assert shown("", "{other}payments") == "{other}payments"
