"""Anything at all is thrown at the readers of headers and bodies: they refuse it, and no more."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onefold.web.http import HttpRequest
from onefold.web.webhooks import (
    BadSignature,
    GitHub,
    Hmac,
    Provider,
    Shopify,
    Slack,
    StandardWebhooks,
    Stripe,
    Twilio,
    verify,
)
from onefold.web.webhooks.processing import bounded
from onefold.web.webhooks.provider import form_fields, json_object, moment_of
from tests.webhooks import senders
from tests.webhooks.senders import SECRET, WHPK, WHSEC, accepted

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def claimed_url(asked: HttpRequest) -> str:
    return asked.value("x-url") or ""


PROVIDERS: Sequence[Provider] = (
    StandardWebhooks([WHSEC, WHPK]),
    Stripe(SECRET),
    GitHub(SECRET, legacy_sha1=True),
    Shopify(SECRET),
    Slack(SECRET),
    Twilio(SECRET, "https://example.com"),
    Twilio(SECRET, claimed_url),
    Hmac(SECRET, sender="acme", header="X-Signature", content="{id}{timestamp}{body}",
         id="X-Id", timestamp_header="X-Time"),
)  # fmt: skip
NAMES = (
    "webhook-id", "webhook-timestamp", "webhook-signature", "svix-id", "svix-signature",
    "stripe-signature", "x-hub-signature-256", "x-hub-signature", "x-github-delivery",
    "x-shopify-hmac-sha256", "shopify-hmac-sha256", "x-slack-signature",
    "x-slack-request-timestamp", "x-twilio-signature", "x-signature", "x-id", "x-time", "x-url",
    "content-type",
)  # fmt: skip
VALUES = st.one_of(
    st.text(max_size=60),
    st.text(st.characters(max_codepoint=255), max_size=60),
    st.text("tv01a=,. :s2%whk[]@/", max_size=60),
    st.sampled_from(["1772366400", "v1,", "t=1772366400,v1=00", "sha256=", "v0=", senders.FORM]),
)
REQUESTS = st.builds(
    HttpRequest,
    method=st.just("POST"),
    path=st.text(max_size=30),
    query=st.one_of(st.text(max_size=30), st.just("bodySHA256=x"), st.just("bodySHA256=%ff&&=")),
    headers=st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=8).map(tuple),
)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
@given(asked=REQUESTS, body=st.binary(max_size=60))
def test_w008_anything_is_refused_and_nothing_else_is_raised(
    provider: Provider, asked: HttpRequest, body: bytes
) -> None:
    with pytest.raises(BadSignature):
        verify(provider, asked, body, NOW)


@given(body=st.one_of(st.binary(), st.text().map(str.encode)))
@example(b"[" * 100_000)
def test_w004_any_body_that_is_signed_is_an_event(body: bytes) -> None:
    for provider, asked in [
        (Stripe(SECRET), senders.stripe(body, NOW)),
        (StandardWebhooks(WHSEC), senders.standard(body, NOW)),
        (Slack(SECRET), senders.slack(body, NOW, content_type=senders.FORM)),
        (GitHub(SECRET), senders.github(body, content_type=senders.FORM)),
        (GitHub(SECRET), senders.github(body)),
        (Shopify(SECRET), senders.shopify(body)),
    ]:
        verified = verify(provider, asked, body, NOW)

        assert (verified.body, bool(verified.id)) == (body, True)
        assert provider.challenge(verified) is None


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_w029_any_form_of_twilios_is_read_as_it_was_written(fields: dict[str, str]) -> None:
    asked, body = senders.twilio_form(fields, url="https://example.com", path="/sms?a=b")

    assert accepted(Twilio(SECRET, "https://example.com"), asked, body, NOW)
    expected = sorted((name.encode(), value.encode()) for name, value in fields.items())
    assert sorted(form_fields(body)) == expected


@given(st.one_of(st.text(), st.text(st.characters()), st.text(min_size=500)))
def test_any_id_becomes_a_key_that_a_database_keeps(event_id: str) -> None:
    key = bounded(event_id or "x")

    assert 1 <= len(key.encode()) <= 512
    assert "\x00" not in key
    assert bounded(key) == key


@given(st.one_of(st.integers(), st.text(), st.none(), st.floats(), st.booleans()))
def test_w048_any_time_of_a_body_is_one_or_none(found: object) -> None:
    moment = moment_of(found)

    assert moment is None or moment.tzinfo is not None


@given(st.binary())
def test_w005_any_body_is_an_object_or_none(body: bytes) -> None:
    assert isinstance(json_object(body), dict)
