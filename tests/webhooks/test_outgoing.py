"""The sender's side: signing, and what an answer means."""

from datetime import UTC, datetime, timedelta

import pytest

from onefold import InvalidInput
from onefold.web.http import Header, HttpRequest
from onefold.web.webhooks import (
    BadSignature,
    Delivered,
    Disabled,
    Secret,
    SendFailed,
    StandardWebhooks,
    Throttled,
    after_response,
    sign,
    verify,
)
from tests.webhooks.senders import WHPK, WHSEC, WHSK

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OLD = "whsec_" + "b2xk" * 8


def sent(headers: tuple[Header, ...]) -> HttpRequest:
    return HttpRequest(method="POST", path="/", headers=headers)


def test_w055_a_retry_has_the_same_id_and_a_new_time() -> None:
    first = sign(WHSEC, id="job-1", body=b"{}", now=NOW)
    second = sign(WHSEC, id="job-1", body=b"{}", now=NOW + timedelta(hours=1))

    assert dict(first)["webhook-id"] == dict(second)["webhook-id"] == "job-1"
    assert dict(first)["webhook-timestamp"] != dict(second)["webhook-timestamp"]
    assert dict(first)["webhook-signature"] != dict(second)["webhook-signature"]
    with pytest.raises(BadSignature):
        verify(StandardWebhooks(WHSEC), sent(first), b"{}", NOW + timedelta(hours=1))


def test_w055_while_secrets_rotate_there_is_a_signature_by_each() -> None:
    secrets: list[str | Secret] = [
        WHSEC,
        Secret(OLD, id="old", until=NOW + timedelta(days=1)),
        Secret(WHSK, id="a"),
    ]

    headers = sign(secrets, id="job-1", body=b"{}", now=NOW)

    for receiver in (WHSEC, OLD, WHPK):
        assert verify(StandardWebhooks(receiver), sent(headers), b"{}", NOW).id == "job-1"
    assert len(dict(headers)["webhook-signature"].split(" ")) == 3


def test_w055_a_secret_whose_time_is_over_does_not_sign() -> None:
    secrets: list[str | Secret] = [WHSEC, Secret(OLD, id="old", until=NOW)]

    headers = sign(secrets, id="job-1", body=b"{}", now=NOW)

    with pytest.raises(BadSignature):
        verify(StandardWebhooks(OLD), sent(headers), b"{}", NOW)
    with pytest.raises(InvalidInput, match="not expired"):
        sign(Secret(OLD, until=NOW), id="job-1", body=b"{}", now=NOW)


@pytest.mark.parametrize("message_id", ["", "a.b", "a b", "a\nb", "é", "x" * 256])
def test_w055_an_id_must_fit_into_a_header_and_have_no_dot(message_id: str) -> None:
    with pytest.raises(InvalidInput, match="id must be"):
        sign(WHSEC, id=message_id, body=b"{}", now=NOW)


def test_w055_only_bytes_are_signed_and_only_by_keys_that_can() -> None:
    with pytest.raises(InvalidInput, match="body"):
        sign(WHSEC, id="job-1", body="{}", now=NOW)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match="whpk_"):
        sign(WHPK, id="job-1", body=b"{}", now=NOW)
    with pytest.raises(InvalidInput, match="time zone"):
        sign(WHSEC, id="job-1", body=b"{}", now=datetime(2026, 1, 1))  # noqa: DTZ001


def test_w056_what_an_answer_means() -> None:
    for status in (200, 201, 202, 204, 299):
        assert after_response(status, [], NOW) == Delivered()
    for status in (300, 301, 302, 303, 304, 307, 308):
        verdict = after_response(status, [("Location", "https://elsewhere.example")], NOW)
        assert isinstance(verdict, SendFailed)
        assert "not followed" in verdict.reason
    assert after_response(410, [("Retry-After", "1")], NOW) == Disabled()
    for status in (429, 502, 503, 504, 529):
        throttled = {"120": 2, "soon": 1}
        for text, minutes in throttled.items():
            verdict = after_response(status, [("retry-after", text)], NOW)
            assert verdict == Throttled(timedelta(minutes=minutes))
        assert after_response(status, [], NOW) == Throttled(timedelta(minutes=1))


def test_w056_retry_after_may_be_a_date_by_the_receivers_own_clock() -> None:
    headers = [
        ("Retry-After", "Sun, 01 Mar 2026 12:10:00 GMT"),
        ("Date", "Sun, 01 Mar 2026 12:05:00 GMT"),
    ]

    assert after_response(503, headers, NOW) == Throttled(timedelta(minutes=5))
    assert after_response(503, headers[:1], NOW) == Throttled(timedelta(minutes=10))


def test_w056_anything_else_has_failed_and_retry_after_counts() -> None:
    for status in (400, 401, 404, 409, 422, 500, 501):
        assert after_response(status, [], NOW) == SendFailed(f"answered {status}")
        waited = after_response(status, [("Retry-After", "7")], NOW)
        assert waited == SendFailed(f"answered {status}", timedelta(seconds=7))
