"""Signatures that are nearly right: each provider, without a database."""

import base64
import hashlib
import hmac
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onefold import InvalidInput
from onefold.web.http import HttpRequest
from onefold.web.webhooks import (
    BadSignature,
    GitHub,
    Hmac,
    Provider,
    Secret,
    Shopify,
    Slack,
    StandardWebhooks,
    Stripe,
    Twilio,
    Verified,
    verify,
)
from tests.webhooks import senders
from tests.webhooks.senders import FORM, SECRET, WHPK, WHSEC, WHSK, accepted, request

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
URL = "https://example.com"

TIMED: list[tuple[Provider, Callable[..., HttpRequest]]] = [
    (StandardWebhooks(WHSEC), senders.standard),
    (Stripe(SECRET), senders.stripe),
    (Slack(SECRET), senders.slack),
]


def by_github(body: bytes, _: datetime) -> HttpRequest:
    return senders.github(body)


def by_shopify(body: bytes, _: datetime) -> HttpRequest:
    return senders.shopify(body)


UNTIMED: list[tuple[Provider, Callable[..., HttpRequest]]] = [
    (GitHub(SECRET), by_github),
    (Shopify(SECRET), by_shopify),
]
timed = pytest.mark.parametrize(
    ("provider", "sign"), TIMED, ids=[provider.name for provider, _ in TIMED]
)
each = pytest.mark.parametrize(
    ("provider", "sign"), [*TIMED, *UNTIMED], ids=[one.name for one, _ in [*TIMED, *UNTIMED]]
)


def refused(
    provider: Provider, asked: HttpRequest, body: bytes = b"{}", now: datetime = NOW
) -> str:
    with pytest.raises(BadSignature) as caught:
        verify(provider, asked, body, now)
    assert caught.value.provider == provider.name
    return caught.value.code


def changed(asked: HttpRequest, **headers: str | None) -> HttpRequest:
    """The same request with headers replaced, or left out."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    kept = [(name, value) for name, value in asked.headers if name not in names]
    added = [(name, value) for name, value in names.items() if value is not None]
    return HttpRequest(method="POST", path=asked.path, query=asked.query, headers=(*kept, *added))


@each
def test_w006_a_required_header_must_be_there_once(
    provider: Provider, sign: Callable[..., HttpRequest]
) -> None:
    asked = sign(b"{}", NOW)
    needed = [
        name for name, _ in asked.headers if "signature" in name or "timestamp" in name
        or "hmac" in name or name == "webhook-id"
    ]  # fmt: skip
    for name in needed:
        value = asked.value(name)
        without = changed(asked, **{name.replace("-", "_"): None})
        empty = changed(asked, **{name.replace("-", "_"): ""})
        twice = HttpRequest(method="POST", path="/", headers=(*asked.headers, (name, f"{value}x")))
        again = HttpRequest(method="POST", path="/", headers=(*asked.headers, (name, str(value))))

        assert refused(provider, without) == "header_missing"
        assert refused(provider, empty) == "header_missing"
        assert refused(provider, twice) == "header_repeated"
        assert accepted(provider, again, b"{}", NOW)


@pytest.mark.parametrize(
    "junk",
    [
        "v9,abc",
        "garbage",
        "v1,a,b",
        "v1,%%%",
        ",",
        "v1",
        "",
        "v1,=",
        "v2,",
        "v1a,not base64",
        ",,,",
    ],
)
def test_w008_what_cannot_be_read_in_a_list_is_passed_over(junk: str) -> None:
    provider = StandardWebhooks([WHSEC, Secret(WHPK, id="public")])
    asked = senders.standard(b"{}", NOW)
    good = asked.value("webhook-signature")

    for signatures in (f"{junk} {good}", f"{good} {junk}", f"{junk}  {junk} {good}"):
        assert accepted(provider, changed(asked, webhook_signature=signatures), b"{}", NOW)
    assert refused(provider, changed(asked, webhook_signature=f"{junk} x")) in {
        "no_match", "no_usable_scheme",
    }  # fmt: skip


UNFIT = {"no_match", "no_usable_scheme", "header_malformed"}


@each
def test_w009_a_signature_of_another_length_is_refused(
    provider: Provider, sign: Callable[..., HttpRequest]
) -> None:
    asked = sign(b"{}", NOW)
    (name,) = [name for name, _ in asked.headers if "signature" in name or "hmac" in name]
    good = str(asked.value(name))
    key = name.replace("-", "_")

    for bad in (good[:-1], f"{good}0", good[:-2], good[:3], good[:20], f"{good}AAAA", f"{good}x\n"):
        assert refused(provider, changed(asked, **{key: bad})) in UNFIT


def test_w010_a_kind_that_no_secret_can_check_is_no_usable_scheme() -> None:
    asked = senders.standard(b"{}", NOW)
    asymmetric = changed(asked, webhook_signature=f"v1a,{'A' * 86}==")

    assert refused(StandardWebhooks(WHSEC), asymmetric) == "no_usable_scheme"
    assert refused(StandardWebhooks(WHPK), asked) == "no_usable_scheme"
    assert refused(StandardWebhooks(WHPK), asymmetric) == "no_match"


def test_w011_a_public_key_is_no_secret_of_a_mac() -> None:
    """Whoever reads the public key could sign with it."""
    forged = senders.standard(b"{}", NOW, secret=WHPK.removeprefix("whpk_"))

    assert refused(StandardWebhooks(WHPK), forged) == "no_usable_scheme"
    assert refused(StandardWebhooks([WHSEC, WHPK]), forged) == "no_match"
    assert refused(StandardWebhooks([WHSEC, WHSK]), forged) == "no_match"


@timed
@pytest.mark.parametrize("tolerance", [0, 1, 300])
def test_w012_w051_the_tolerance_is_of_both_sides(
    provider: Provider, sign: Callable[..., HttpRequest], tolerance: int
) -> None:
    provider = type(provider)(provider.secrets, tolerance=timedelta(seconds=tolerance))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    asked, bound = sign(b"{}", NOW), timedelta(seconds=tolerance)
    second = timedelta(seconds=1)

    assert verify(provider, asked, b"{}", NOW + bound).timestamp == NOW
    assert verify(provider, asked, b"{}", NOW - bound).timestamp == NOW
    assert refused(provider, asked, now=NOW + bound + second) == "too_old"
    assert refused(provider, asked, now=NOW - bound - second) == "too_new"


@timed
@pytest.mark.parametrize(
    "stamp",
    [
        "1614265330.7", "1.6e9", "nan", "inf", "+1614265330", " 1614265330", "1614265330 ", "0x5f",
        "-1614265330", "16142653301614265330", "١٦١٤٢٦٥٣٣٠", "1614265330\n", "1_614_265_330", "1e3",
        "²", "9" * 12, "9" * 5000, f"{int(NOW.timestamp())}000",
    ],
)  # fmt: skip
def test_w013_w014_a_timestamp_is_ascii_digits(
    provider: Provider, sign: Callable[..., HttpRequest], stamp: str
) -> None:
    asked = sign(b"{}", NOW, stamp=stamp)

    # Stripe's header may have spaces around its parts: then 2021 is too old.
    assert refused(provider, asked) in {
        "timestamp_malformed", "header_malformed", "no_match", "too_old",
    }  # fmt: skip


@timed
def test_w013_the_signature_is_over_the_literal_text(
    provider: Provider, sign: Callable[..., HttpRequest]
) -> None:
    plain, padded = sign(b"{}", NOW), sign(b"{}", NOW, stamp=f"0{int(NOW.timestamp())}")
    assert verify(provider, padded, b"{}", NOW).timestamp == NOW
    for (name, value), (_, other) in zip(plain.headers, padded.headers, strict=True):
        if "timestamp" in name:
            mixed = changed(plain, **{name.replace("-", "_"): other})
            assert refused(provider, mixed) == "no_match", value


@pytest.mark.parametrize("make", [StandardWebhooks, Stripe, Slack])
@pytest.mark.parametrize("tolerance", [None, 300, 0, -timedelta(seconds=1), timedelta.max])
def test_w015_the_check_of_time_cannot_be_switched_off(make: Any, tolerance: object) -> None:
    with pytest.raises(InvalidInput, match="tolerance"):
        make(WHSEC, tolerance=tolerance)


def a_twilio(secret: Any) -> Provider:
    return Twilio(secret, URL)


def any_other(secret: Any) -> Provider:
    return Hmac(secret, sender="acme", header="X-Signature")


def makers() -> list[Any]:
    return [
        StandardWebhooks, Stripe, GitHub, Shopify, Slack,
        a_twilio, any_other,
    ]  # fmt: skip


@pytest.mark.parametrize("make", makers())
def test_w016_a_secret_that_cannot_be_one_is_refused_at_the_start(make: Any) -> None:
    wrong: list[Any] = ["", " ", "\n", f"{WHSEC}\n", f" {WHSEC}", b"bytes", None, 7, []]
    twins = [Secret("a", id="x"), Secret("b", id="x")]
    for secret in (*wrong, twins):
        with pytest.raises(InvalidInput, match=r"secret|differ"):
            make(secret)
    with pytest.raises(InvalidInput, match="time zone"):
        Secret("a", until=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


@pytest.mark.parametrize(
    "secret",
    ["whsec_", "whpk_", "whsk_", "whsec_!!!", "not base64 at all", "whpk_AAAA", "whsk_AAAA", "A",
     f"{WHSK[:-4]}", f"whsk_{WHSK[5:47]}{'A' * 44}", WHPK[:-4]],
)  # fmt: skip
def test_w016_a_key_of_standard_webhooks_is_checked_at_the_start(secret: str) -> None:
    with pytest.raises(InvalidInput):
        StandardWebhooks(secret)


def test_w017_a_secret_means_another_key_to_stripe_than_to_standard_webhooks() -> None:
    """Both look like `whsec_…`; one is used as it stands, the other is decoded."""
    as_text = senders.stripe(b"{}", NOW, secret=WHSEC)
    decoded = base64.b64decode(WHSEC.removeprefix("whsec_")).decode("latin-1")

    assert accepted(Stripe(WHSEC), as_text, b"{}", NOW)
    assert refused(Stripe(decoded), as_text) == "no_match"
    assert refused(StandardWebhooks(WHSEC), as_text) == "header_missing"
    verbatim = base64.b64encode(WHSEC.encode()).decode()
    assert refused(
        StandardWebhooks(WHSEC), senders.standard(b"{}", NOW, secret=verbatim)
    ) == "no_match"  # fmt: skip


@pytest.mark.parametrize(("length", "warned"), [(23, True), (24, False), (64, False), (65, True)])
def test_w018_a_secret_of_an_unusual_length_is_warned_of(
    length: int, *, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    text = base64.b64encode(b"x" * length).decode()
    with caplog.at_level(logging.WARNING):
        StandardWebhooks(f"whsec_{text}")

    assert bool(caplog.records) is warned
    assert text not in caplog.text


@each
def test_w019_either_of_two_secrets_will_do_and_is_named(
    provider: Provider, sign: Callable[..., HttpRequest]
) -> None:
    new = "whsec_" + base64.b64encode(b"n" * 24).decode()
    (old,) = provider.ring
    rotating = type(provider)([Secret(new, id="2026-03"), Secret(old.text, id="2025-09")])
    only_new = type(provider)([new])
    asked = sign(b"{}", NOW)

    verified = verify(rotating, asked, b"{}", NOW)

    assert (verified.secret_id, verified.old_secret) == ("2025-09", True)
    assert not verify(provider, asked, b"{}", NOW).old_secret
    assert refused(only_new, asked) == "no_match"


@each
def test_w020_an_old_secret_ends(provider: Provider, sign: Callable[..., HttpRequest]) -> None:
    (old,) = provider.ring
    new = "whsec_" + base64.b64encode(b"n" * 24).decode()
    asked = sign(b"{}", NOW)

    def rotating(until: datetime) -> Provider:
        return type(provider)([new, Secret(old.text, until=until)])

    assert accepted(rotating(NOW + timedelta(seconds=1)), asked, b"{}", NOW)
    assert refused(rotating(NOW), asked) == "secret_expired"


def test_w021_an_id_with_a_dot_is_refused_unless_told_otherwise() -> None:
    asked = senders.standard(b"{}", NOW, event_id="msg.1")

    assert refused(StandardWebhooks(WHSEC), asked) == "id_malformed"
    assert verify(StandardWebhooks(WHSEC, dots_in_id=True), asked, b"{}", NOW).id == "msg.1"


def test_w006_svix_headers_and_standard_ones_must_agree() -> None:
    asked = senders.standard(b"{}", NOW)
    other = changed(asked, svix_id="msg_2")

    assert refused(StandardWebhooks(WHSEC), other) == "header_repeated"
    assert accepted(StandardWebhooks(WHSEC), changed(asked, svix_id="msg_1"), b"{}", NOW)


# --- GitHub ---------------------------------------------------------------------------------------


def test_w022_githubs_older_signature_counts_only_if_told_so() -> None:
    made = hmac.new(SECRET.encode(), b"{}", hashlib.sha1).hexdigest()
    asked = request(x_hub_signature=f"sha1={made}", x_github_delivery="d-1")

    assert refused(GitHub(SECRET), asked) == "no_usable_scheme"
    assert verify(GitHub(SECRET, legacy_sha1=True), asked, b"{}", NOW).id == "d-1"
    wrong = changed(asked, x_hub_signature_256=f"sha256={'0' * 64}")
    assert refused(GitHub(SECRET, legacy_sha1=True), wrong) == "no_match"


def test_w023_githubs_signature_has_a_prefix_and_digits_of_any_case() -> None:
    asked = senders.github(b"{}")
    digits = str(asked.value("x-hub-signature-256")).removeprefix("sha256=")

    assert refused(GitHub(SECRET), changed(asked, x_hub_signature_256=digits)) == "header_malformed"
    upper = changed(asked, x_hub_signature_256=f"sha256={digits.upper()}")
    assert accepted(GitHub(SECRET), upper, b"{}", NOW)
    wrong = changed(asked, x_hub_signature_256=f"SHA256={digits}")
    assert refused(GitHub(SECRET), wrong) == "header_malformed"


def test_w024_githubs_form_is_signed_as_it_is_sent_and_the_event_is_inside() -> None:
    body = b"payload=%7B%22action%22%3A+%22opened%22%7D&x=1"
    asked = senders.github(body, event="issues", content_type=f"{FORM}; charset=utf-8")

    verified = verify(GitHub(SECRET), asked, body, NOW)

    assert verified.json() == {"action": "opened"}
    assert verified.body == body
    assert verified.event_type == "issues"


# --- Shopify --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hmac_sha256", "topic", "shop_domain", "event_id"])
def test_w025_shopifys_headers_under_both_names_must_agree(name: str) -> None:
    asked = senders.shopify(b"{}")
    value = asked.value(f"x-shopify-{name.replace('_', '-')}")

    same = changed(asked, **{f"shopify_{name}": value})
    other = changed(asked, **{f"shopify_{name}": f"{value}x"})
    renamed = changed(same, **{f"x_shopify_{name}": None})

    assert accepted(Shopify(SECRET), same, b"{}", NOW)
    assert verify(Shopify(SECRET), renamed, b"{}", NOW).key == "tea.myshopify.com:orders/create:e-1"
    assert refused(Shopify(SECRET), other) == "header_repeated"


def test_w026_w045_shopifys_signature_may_end_with_a_new_line_and_its_id_may_be_another() -> None:
    asked = senders.shopify(b"{}", event_id=None, x_shopify_webhook_id="w-1")
    ended = changed(asked, x_shopify_hmac_sha256=f"{asked.value('x-shopify-hmac-sha256')}\n")

    assert verify(Shopify(SECRET), ended, b"{}", NOW).key == "tea.myshopify.com:orders/create:w-1"


# --- Slack ----------------------------------------------------------------------------------------


def test_w027_slacks_challenge_is_read_only_from_a_url_verification() -> None:
    provider = Slack(SECRET)
    body = b'{"type": "url_verification", "challenge": "3eZbrw1aB"}'
    verified = verify(provider, senders.slack(body, NOW), body, NOW)
    event = b'{"type": "event_callback", "event_id": "Ev1", "event": {"type": "message"}}'
    other = verify(provider, senders.slack(event, NOW), event, NOW)

    assert provider.challenge(verified) == "3eZbrw1aB"
    assert provider.challenge(other) is None
    assert (other.id, other.event_type) == ("Ev1", "message")
    body = b"payload=%7B%22type%22%3A%22block_actions%22%7D"
    inside = verify(Slack(SECRET), senders.slack(body, NOW, content_type=FORM), body, NOW)
    assert inside.json() == {"type": "block_actions"}
    assert inside.id.startswith("digest:")


CALLED_A_FORM = b'{"text": "&payload=%7B%22evil%22%3A1%7D&"}'


@pytest.mark.parametrize(
    ("provider", "asked"),
    [
        (GitHub(SECRET), senders.github(CALLED_A_FORM, content_type=FORM)),
        (Slack(SECRET), senders.slack(CALLED_A_FORM, NOW, content_type=FORM)),
    ],
    ids=["github", "slack"],
)
def test_w024_json_that_is_called_a_form_is_the_same_event(
    provider: Provider, asked: HttpRequest
) -> None:
    said = verify(provider, asked, CALLED_A_FORM, NOW).json()

    assert said == {"text": "&payload=%7B%22evil%22%3A1%7D&"}


# --- Twilio ---------------------------------------------------------------------------------------


def test_w028_forwarding_is_not_believed_unless_told() -> None:
    asked, body = senders.twilio_form({"Sid": "1"}, url=URL, path="/sms?a=b")
    proxied = changed(asked, host="internal:8000", x_forwarded_host="evil.example",
                      x_forwarded_proto="http")  # fmt: skip

    assert accepted(Twilio(SECRET, URL), proxied, body, NOW)
    assert refused(Twilio(SECRET, "http://internal:8000"), proxied, body) == "no_match"

    def believing(asked: HttpRequest) -> str:
        return f"https://{asked.value('x-forwarded-host')}{asked.path}?{asked.query}"

    forwarded = changed(proxied, x_forwarded_host="example.com")
    assert accepted(Twilio(SECRET, believing), forwarded, body, NOW)
    elsewhere = HttpRequest(method="POST", path="/inner", query="a=b", headers=asked.headers)
    assert accepted(Twilio(SECRET, f"{URL}/sms"), elsewhere, body, NOW)
    assert refused(Twilio(SECRET, URL), elsewhere, body) == "no_match"


@pytest.mark.parametrize(
    "url", ["example.com", "ftp://x", "", "https://", "https://x?a=b", "https://x:port"]
)
def test_w028_the_public_url_is_checked_at_the_start(url: str) -> None:
    with pytest.raises(InvalidInput, match="url"):
        Twilio(SECRET, url)


def test_w029_a_form_of_thousands_of_fields_is_not_parsed() -> None:
    fields = {f"f{number}": "x" for number in range(1_001)}
    asked, body = senders.twilio_form(fields, url=URL, path="/sms")
    assert refused(Twilio(SECRET, URL), asked, body) == "too_many_fields"

    del fields["f0"]
    asked, body = senders.twilio_form(fields, url=URL, path="/sms")
    assert accepted(Twilio(SECRET, URL), asked, body, NOW)


def signed_by_twilio(path: str, content_type: str = "application/json") -> HttpRequest:
    """Its signature is of the address alone."""
    content = f"{URL}{path}".encode()
    made = base64.b64encode(hmac.new(SECRET.encode(), content, hashlib.sha1).digest()).decode()
    return request(path, x_twilio_signature=made, content_type=content_type)


def test_w030_w031_a_body_that_is_no_form_is_bound_by_its_digest_or_refused() -> None:
    provider, body, none = Twilio(SECRET, URL), b'{"a": 1}', f"bodySHA256={'0' * 64}"
    digest = f"bodySHA256={hashlib.sha256(body).hexdigest()}"
    bare = signed_by_twilio("/events")

    assert accepted(provider, bare, b"", NOW)
    assert refused(provider, bare, body) == "body_unbound"
    assert refused(provider, changed(bare, content_type=None), b"{}") == "no_match"
    assert accepted(provider, signed_by_twilio(f"/events?{digest}"), body, NOW)
    assert refused(provider, signed_by_twilio(f"/events?{digest}&{none}"), body) == "body_unbound"
    unsigned = msgspec.structs.replace(signed_by_twilio(""), path="/", query=digest)
    assert refused(Twilio(SECRET, lambda _: URL), unsigned, body) == "body_unbound"
    captured = signed_by_twilio(f"/events?{digest}", FORM)
    for other in (b"", b"a=1"):
        assert refused(provider, captured, other) == "body_unbound"


# --- Stripe ---------------------------------------------------------------------------------------


def stripe_header(form: str) -> HttpRequest:
    good = str(senders.stripe(b"{}", NOW).value("stripe-signature"))
    stamp, _, signature = good.removeprefix("t=").partition(",v1=")
    return request(stripe_signature=form.format(t=stamp, v1=signature, bad="0" * 64))


@pytest.mark.parametrize(
    "form",
    ["t={t},v1={v1}", "v1={v1},t={t}", "t={t},v1={bad},v1={v1}", "t={t},v1={v1},v0={bad},v9=x",
     " t={t} , v1={v1} ", "t={t},v1={v1},", "x,t={t},v1={v1}"],
)  # fmt: skip
def test_w032_stripes_header_has_one_time_and_any_number_of_signatures(form: str) -> None:
    assert accepted(Stripe(SECRET), stripe_header(form), b"{}", NOW)


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ("t={t},t={t},v1={v1}", "header_malformed"),
        ("v1={v1}", "header_malformed"),
        ("t=,v1={v1},v0={bad}", "timestamp_malformed"),
        ("t,v1=,v0=", "no_usable_scheme"),
        ("t,v1=,v0", "no_usable_scheme"),
        ("t={t},v0={v1}", "no_usable_scheme"),
        ("t={t},v1={bad}", "no_match"),
        ("t={t};v1={v1}", "no_usable_scheme"),
        ("t={t},v1={v1}x", "no_match"),
    ],
)
def test_w032_other_headers_of_stripes_are_refused(form: str, code: str) -> None:
    assert refused(Stripe(SECRET), stripe_header(form)) == code


def test_w034_what_is_compressed_is_verified_as_it_was_received() -> None:
    body = bytes.fromhex("1f8b0800000000000003abae050043bfa6a302000000")
    asked = changed(senders.github(body), content_encoding="gzip")

    assert verify(GitHub(SECRET), asked, body, NOW).body == body
    assert refused(GitHub(SECRET), asked, b"{}") == "no_match"


# --- any other sender -----------------------------------------------------------------------------


def test_w001_any_other_sender_says_what_it_signs() -> None:
    provider = Hmac(
        "c2VjcmV0", sender="acme", header="X-Acme-Signature", prefix="v2=", encoding="base64",
        algorithm="sha512", content="v2:{id}:{timestamp}:{body}", secret_form="base64",
        timestamp_header="X-Acme-Time", id="X-Acme-Id", type_header="X-Acme-Event",
    )  # fmt: skip
    content = b"v2:e-1:" + senders.seconds(NOW).encode() + b":{}"
    made = base64.b64encode(hmac.new(b"secret", content, hashlib.sha512).digest()).decode()
    asked = request(
        x_acme_signature=f"v2={made}", x_acme_time=senders.seconds(NOW), x_acme_id="e-1",
        x_acme_event="paid",
    )  # fmt: skip

    verified = verify(provider, asked, b"{}", NOW)

    assert verified == Verified(
        provider="hmac:acme", id="e-1", secret_id="1", body=b"{}",
        event_type="paid", timestamp=NOW,
    )  # fmt: skip
    assert refused(provider, changed(asked, x_acme_id="e-2")) == "no_match"
    assert refused(provider, changed(asked, x_acme_id=None)) == "header_missing"
    assert refused(provider, asked, now=NOW + timedelta(minutes=6)) == "too_old"
    assert refused(provider, changed(asked, x_acme_signature=made)) == "header_malformed"


def test_w043_an_id_that_is_not_signed_has_a_guard() -> None:
    made = hmac.new(b"secret", b"{}", hashlib.sha256).hexdigest()
    asked = request(x_signature=made, x_id="e-1")

    by_header = Hmac("secret", sender="acme", header="X-Signature", id="X-Id")
    by_body = Hmac("secret", sender="acme", header="X-Signature", id=lambda body: "from-the-body")

    assert verify(by_header, asked, b"{}", NOW).guard
    assert verify(by_body, asked, b"{}", NOW).guard is None
    assert verify(by_body, asked, b"{}", NOW).id == "from-the-body"


@pytest.mark.parametrize(
    "options",
    [
        {"content": "no body"}, {"content": "{body}{other}"}, {"content": "{timestamp}{body}"},
        {"timestamp_header": "X-Time"}, {"content": "{id}{body}"}, {"encoding": "octal"},
        {"algorithm": "md5"}, {"secret_form": "hex"}, {"secret_form": "rot13"}, {"sender": ""},
    ],
)  # fmt: skip
def test_w016_the_settings_of_any_other_sender_are_checked(options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"sender": "acme", "header": "X-Signature", **options}

    with pytest.raises(InvalidInput):
        Hmac("secret", **given)


def test_w053_what_may_be_logged_has_no_secret_and_no_body() -> None:
    body = b'{"card": "4242"}'
    provider = Stripe([SECRET, Secret("another", id="old", until=NOW)])
    verified = verify(provider, senders.stripe(body, NOW), body, NOW)
    with pytest.raises(BadSignature) as caught:
        verify(provider, senders.stripe(body, NOW, secret="x"), body, NOW)

    told = f"{provider!r} {verified!r} {caught.value!r} {caught.value} {caught.value.evidence}"

    assert SECRET not in told
    assert "another" not in told
    assert "4242" not in told
    assert "v1=" not in told
    assert "StandardWebhooks" in repr(StandardWebhooks(WHSEC))
    assert WHSEC not in repr(StandardWebhooks(WHSEC))
    assert str(base64.b64decode(WHSEC[6:])) not in repr(StandardWebhooks(WHSEC))


@pytest.mark.parametrize(
    ("make", "given", "wanted"),
    [
        (Stripe, "sk_live_51abc", r"begins with whsec_ .* got a secret API key"),
        (Stripe, "pk_live_51abc", "got a publishable API key"),
        (Stripe, "we_1abc", "got the id of a webhook endpoint"),
        (Stripe, "", "got an empty text. Check the setting"),
        (Stripe, None, r"got NoneType\. Check the setting"),
        (StandardWebhooks, "sk_test_1", "begins with whsec_ or whpk_, got an API key"),
        (StandardWebhooks, "of_abc", "got an API key of Onefold's"),
        (StandardWebhooks, "whsec_#", r"not base64\. Copy it whole"),
        (Slack, "xoxb-1", "signing secret of the app"),
        (GitHub, "ghp_1", "entered for this webhook"),
        (Shopify, "shpat_1", "client secret of the app"),
    ],
)
def test_a_wrong_secret_is_refused_with_what_to_give_instead(
    make: Any, given: Any, wanted: str
) -> None:
    with pytest.raises(InvalidInput, match=wanted) as caught:
        make(given)

    assert "51abc" not in str(caught.value), "nothing of it is told but its prefix"
