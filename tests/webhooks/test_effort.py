"""What a request costs before its signature is known to be good: anyone can send it."""

import hmac
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType
from typing import Any

import pytest

from onefold.client.push_request import PushedJobs
from onefold.events import WebhookRejected
from onefold.web.http import HttpRequest
from onefold.web.webhooks import (
    BadSignature,
    Hmac,
    Provider,
    Slack,
    StandardWebhooks,
    Stripe,
    verify,
)
from tests.webhooks import senders
from tests.webhooks.endpoint import Endpoint
from tests.webhooks.senders import SECRET, WHPK, WHSEC, request

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OTHER = "whsec_" + "bmV3" * 8
BODY = b'{"a": "' + b"b" * 1_000 + b'"}'
TOO_MANY = "The header has more than 16 signatures.\n"


@contextmanager
def passes() -> Generator[list[str]]:
    """The passes over the body that the standard library and cryptography make meanwhile."""
    made: list[str] = []

    def see(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code is hmac.HMAC.update.__code__:
            made.append("mac")
        elif event == "c_call" and "Ed25519PublicKey" in argument.__qualname__:
            made.append("verify")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield made
    finally:
        sys.setprofile(before)


def cost(provider: Provider, asked: HttpRequest, now: datetime = NOW) -> tuple[str, list[str]]:
    """The answer to a request, and the passes over its body."""
    with passes() as made:
        try:
            verify(provider, asked, BODY, now)
        except BadSignature as error:
            return error.code, made
    return "accepted", made


def standard(*signatures: str, prefix: str = "webhook") -> HttpRequest:
    headers = {"id": "msg_1", "timestamp": senders.seconds(NOW), "signature": " ".join(signatures)}
    return request(**{f"{prefix}_{name}": value for name, value in headers.items()})


svix = partial(standard, prefix="svix")


def stripe(*signatures: str) -> HttpRequest:
    return request(stripe_signature=",".join([f"t={senders.seconds(NOW)}", *signatures]))


GOOD_V1 = str(senders.standard(BODY, NOW).value("webhook-signature"))
GOOD_STRIPE = str(senders.stripe(BODY, NOW).value("stripe-signature")).partition(",")[2]
BAD_V1, BAD_V1A, BAD_STRIPE = f"v1,{'A' * 43}=", f"v1a,{'A' * 86}==", f"v1={'0' * 64}"


@pytest.mark.parametrize(
    ("provider", "header", "bad", "good", "most"),
    [
        (StandardWebhooks(WHSEC), standard, BAD_V1, GOOD_V1, ["mac"]),
        (StandardWebhooks([OTHER, WHSEC]), svix, BAD_V1, GOOD_V1, ["mac"] * 2),
        (StandardWebhooks(WHPK), standard, BAD_V1A, "", ["verify"] * 16),
        (StandardWebhooks([WHSEC, WHPK]), standard, BAD_V1A, GOOD_V1, ["mac"] + ["verify"] * 15),
        (PushedJobs(WHSEC), standard, BAD_V1, "", ["mac"]),
        (Stripe(SECRET), stripe, BAD_STRIPE, GOOD_STRIPE, ["mac"]),
        (Stripe(["another", SECRET]), stripe, BAD_STRIPE, GOOD_STRIPE, ["mac"] * 2),
    ],
)
def test_w008_w032_a_list_of_signatures_costs_one_mac_for_each_secret_and_a_longer_one_nothing(
    provider: Provider, header: Callable[..., HttpRequest], bad: str, good: str, most: list[str]
) -> None:
    answer, made = cost(provider, header(*[bad] * 15, good or bad))
    assert answer == ("accepted" if good else "no_match")
    assert made == most
    for count in (16, 12_000):
        assert cost(provider, header(*[bad] * count, good or bad)) == ("too_many_signatures", [])


@pytest.mark.parametrize("is_forged", [False, True])
@pytest.mark.parametrize(
    ("provider", "sign"),
    [
        (StandardWebhooks(WHSEC), senders.standard),
        (Stripe(SECRET), senders.stripe),
        (Slack(SECRET), senders.slack),
        (
            Hmac(SECRET, sender="acme", header="X-Slack-Signature", prefix="v0=",
                 content="v0:{timestamp}:{body}", timestamp_header="X-Slack-Request-Timestamp"),
            senders.slack,
        ),
    ],
    ids=["standard", "stripe", "slack", "hmac"],
)  # fmt: skip
def test_w012_w051_a_captured_request_costs_nothing_later(
    provider: Provider, sign: Callable[..., HttpRequest], *, is_forged: bool
) -> None:
    """Whether its signature is good makes no difference, so the time tells nothing about it."""
    asked = sign(b"forged" if is_forged else BODY, NOW)
    minutes = timedelta(minutes=6)

    assert cost(provider, asked, NOW + minutes) == ("too_old", [])
    assert cost(provider, asked, NOW - minutes) == ("too_new", [])
    assert cost(provider, asked)[0] == ("no_match" if is_forged else "accepted")


async def test_w035_too_many_signatures_are_answered_with_a_sentence(endpoint: Endpoint) -> None:
    asked = standard(*[BAD_V1] * 17)

    response = await endpoint.receive(asked, BODY)

    assert (response.status, response.body.decode()) == (400, TOO_MANY)
    (rejected,) = endpoint.told_of(WebhookRejected)
    assert rejected.code == "too_many_signatures"
    assert endpoint.count == 0
