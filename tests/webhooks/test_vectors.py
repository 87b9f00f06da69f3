"""What others have published: requests with the signatures that fit them."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from onefold import InvalidInput
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
    sign,
    verify,
)
from tests.webhooks.senders import FORM, WHPK, WHSEC, WHSK, accepted, request

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MESSAGE = {"webhook_id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook_timestamp": "1614265330"}
MESSAGE_BODY = b'{"test": 2432232314}'
V1 = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
V1A = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
STRIPE_BODY = b"""{
  "id": "evt_123",
  "object": "event",
  "account": "acct_123",
  "api_version": "2017-05-25",
  "created": 1533204620,
  "data": {
    "object": {
      "id": "cus_123",
      "object": "customer",
      "created": 123456789,
      "email": "test@stripe.com",
      "livemode": false,
      "metadata": {}
    }
  },
  "livemode": false,
  "pending_webhooks": 1,
  "request": {
    "id": "req_123",
    "idempotency_key": "idempotency-key-123"
  },
  "type": "customer.created"
}
"""
STRIPE_V1 = "2220f87ef101a04665f11cdf770523143f875572008577fa0f20882ddb9cc3c7"
STRIPE_V0 = "63f3a72374a733066c4be69ed7f8e5ac85c22c9f0a6a612ab9a025a9e4ee7eef"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
    b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
    b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
    b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121"
    b".803a0bc887a14d10d2c447fce8b6703c"
)
CALL = {
    "CallSid": "CA1234567890ABCDE",
    "Digits": "1234",
    "From": "+14158675309",
    "To": "+18005551212",
    "Caller": "+14158675309",
}
APP = "/myapp.php?foo=1&bar=2"
JSON_HASH = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
EMPTY_HASH = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


class Vector(NamedTuple):
    """A request, and what it is to be verified with."""

    name: str
    provider: Provider
    request: HttpRequest
    body: bytes
    at: int = 0

    @property
    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.at)


def form(name: str, url: str, signature: str, fields: object, path: str = APP) -> Vector:
    asked = request(path, x_twilio_signature=signature, content_type=FORM)
    body = urlencode(fields, doseq=True).encode()  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return Vector(f"twilio-{name}", Twilio("12345", url), asked, body)


def hashed(name: str, signature: str, path: str, body: bytes) -> Vector:
    asked = request(path, x_twilio_signature=signature, content_type="application/json")
    return Vector(f"twilio-{name}", Twilio("12345", "https://mycompany.com"), asked, body)


TWILIO = [
    form("plain", "https://mycompany.com", "RSOYDt4T1cUTdK1PDd93/VVr8B8=", CALL),
    form("https-port", "https://mycompany.com:1234", "RSOYDt4T1cUTdK1PDd93/VVr8B8=", CALL),
    form("adds-443", "https://mycompany.com", "kvajT1Ptam85bY51eRf/AJRuM3w=", CALL),
    form("adds-80", "http://mycompany.com", "0ZXoZLH/DfblKGATFgpif+LLRf4=", CALL),
    form("http-port", "http://mycompany.com:1234", "Zmvh+3yNM1Phv2jhDCwEM3q5ebU=", CALL),
    form("user", "https://user:pass@mycompany.com", "CukzLTc1tT5dXEDIHm/tKBanW10=", CALL),
    form("user-only", "https://user@mycompany.com", "2YRLlVAflCqxaNicjMpJcSTgzSs=", CALL),
    form("user-port", "https://user:pass@mycompany.com", "ZQFR1PTIZXF2MXB8ZnKCvnnA+rI=", CALL),
    form("documented", "https://mycompany.com", "GvWf1cFY/Q7PnoempGyD5oXAezc=",
         CALL | {"From": "+14158675310", "Caller": "+14158675310"}),
    form("quotes", "https://mycompany.com", "dsq4Ehbj6cs+KdTkpF5sSSplOWw=", CALL,
         path=f"{APP}&Body=It's+amazing"),
    form("array", "https://mycompany.com", "83O6e2vORAoJHUNzJjDWN1jz+BA=",
         {"MessagingBinding.Address": ["+1325xxxxxxx", "+1415xxxxxxx"]}),
    form("array-turned", "https://mycompany.com", "83O6e2vORAoJHUNzJjDWN1jz+BA=",
         {"MessagingBinding.Address": ["+1415xxxxxxx", "+1325xxxxxxx"]}),
    form("repeated", "https://mycompany.com", "IK+Dwps556ElfBT0I3Rgjkr1wJU=",
         {"Sid": "CA123", "SidAccount": "AC123", "Digits": ["5678", "1234", "1234"]}),
    hashed("json", "a9nBmqA0ju/hNViExpshrM61xv4=", f"{APP}&bodySHA256={JSON_HASH}",
           b'{"property": "value", "boolean": true}'),
    hashed("json-empty", "Ldidvp12m26NI7eqEvxnEpkd9Hc=", f"{APP}&bodySHA256={EMPTY_HASH}", b"{}"),
    hashed("json-alone", "y77kIzt2vzLz71DgmJGsen2scGs=", f"/myapp.php?bodySHA256={JSON_HASH}",
           b'{"property": "value", "boolean": true}'),
]  # fmt: skip

VECTORS = [
    Vector("standard-v1", StandardWebhooks(WHSEC), request(**MESSAGE, webhook_signature=V1),
           MESSAGE_BODY, 1614265330),
    Vector("standard-bare-secret", StandardWebhooks(WHSEC.removeprefix("whsec_")),
           request(**MESSAGE, webhook_signature=V1), MESSAGE_BODY, 1614265330),
    Vector("svix-v1", StandardWebhooks(WHSEC),
           request(svix_id=MESSAGE["webhook_id"], svix_timestamp="1614265330", svix_signature=V1),
           MESSAGE_BODY, 1614265330),
    Vector("standard-v1a", StandardWebhooks(WHPK), request(**MESSAGE, webhook_signature=V1A),
           MESSAGE_BODY, 1614265330),
    Vector("standard-v1a-private", StandardWebhooks(WHSK),
           request(**MESSAGE, webhook_signature=V1A), MESSAGE_BODY, 1614265330),
    Vector("stripe", Stripe("webhook_secret"),
           request(stripe_signature=f"t=1533204620,v1={STRIPE_V1},v0={STRIPE_V0}"), STRIPE_BODY,
           1533204720),
    Vector("github", GitHub("It's a Secret to Everybody"),
           request(x_hub_signature_256="sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4"
                   "379c8b043e17"), b"Hello, World!"),
    Vector("slack", Slack("8f742231b10e8888abcd99yyyzzz85a5"),
           request(x_slack_request_timestamp="1531420618", content_type=FORM,
                   x_slack_signature="v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c"
                   "69b503"), SLACK_BODY, 1531420618),
    Vector("svix-documented", StandardWebhooks("whsec_plJ3nmyCDGBKInavdOK15jsl"),
           request(svix_id="msg_loFOjxBNrRLzqYUf", svix_timestamp="1731705121",
                   svix_signature="v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="),
           b'{"event_type":"ping","data":{"success":true}}', 1731705121),
    Vector("github-octokit", GitHub("mysecret"),
           request(x_hub_signature_256="sha256=4864d2759938a15468b5df9ade20bf161da9b4f737ea61794142"
                   "f3484236bda3"), b'{"foo":"bar"}'),
    Vector("github-octokit-sha1", GitHub("mysecret", legacy_sha1=True),
           request(x_hub_signature="sha1=d03207e4b030cf234e3447bac4d93add4c6643d8"),
           b'{"foo":"bar"}'),
    Vector("slack-hello", Slack("the-secret"),
           request(x_slack_request_timestamp="1590253817",
                   x_slack_signature="v0=be81dff716fe0e1d65558f82a5152430fc03e1c1876e60097c7fd337ff"
                   "7b22ea"), b"hello, world!", 1590253817),
    Vector("shopify", Shopify("test-webhook-secret"),
           request(x_shopify_hmac_sha256="QNyObTlKbMx2qDlPF/ZOZcBqg5OgPg+2oky3zldc0Gw="),
           b'{"id":1234567890,"email":"customer@example.com","total_price":"123.45"}'),
    *TWILIO,
]  # fmt: skip

each_vector = pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)


@each_vector
def test_w001_what_others_have_published_is_accepted(vector: Vector) -> None:
    verified = verify(vector.provider, vector.request, vector.body, vector.now)

    assert verified.provider == vector.provider.name
    assert verified.body == vector.body
    assert verified.secret_id == "1"


@each_vector
def test_w002_and_refused_when_a_byte_is_changed_or_added(vector: Vector) -> None:
    wrong = [vector.body + b"\n"]
    for place in {0, len(vector.body) // 2, len(vector.body) - 1}:
        changed = bytearray(vector.body)
        changed[place] ^= 1
        wrong.append(bytes(changed))

    for body in wrong:
        with pytest.raises(BadSignature):
            verify(vector.provider, vector.request, body, vector.now)


@each_vector
def test_w003_only_raw_bytes_are_verified(vector: Vector) -> None:
    parsed: list[Any] = [vector.body.decode(), bytearray(vector.body), {"body": 1}, None]
    for body in parsed:
        with pytest.raises(InvalidInput, match="body must be the raw bytes"):
            verify(vector.provider, vector.request, body, vector.now)


@each_vector
def test_w007_the_case_of_headers_does_not_matter(vector: Vector) -> None:
    for spell in (str.upper, str.title, str.lower):
        headers = tuple((spell(name), value) for name, value in vector.request.headers)
        asked = HttpRequest(
            method="POST", path=vector.request.path, query=vector.request.query, headers=headers
        )

        assert accepted(vector.provider, asked, vector.body, vector.now)


@pytest.mark.parametrize(
    ("bare", "padded"),
    [
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS="),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwBr", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwBg=="),
    ],
)
def test_w001_a_secret_without_padding_is_the_same(bare: str, padded: str) -> None:
    at = EPOCH + timedelta(seconds=1614265330)
    content = b"msg_1.1614265330.{}"
    key = base64.b64decode(f"{bare}{'=' * (-len(bare) % 4)}")
    signature = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    asked = request(
        webhook_id="msg_1", webhook_timestamp="1614265330", webhook_signature=f"v1,{signature}"
    )

    for secret in (bare, padded, f"whsec_{bare}", f"whsec_{padded}"):
        assert accepted(StandardWebhooks(secret), asked, b"{}", at)


@pytest.mark.parametrize(("secret", "signature"), [(WHSEC, V1), (WHSK, V1A)])
def test_w055_what_we_sign_is_what_others_have_published(secret: str, signature: str) -> None:
    at = EPOCH + timedelta(seconds=1614265330)

    headers = dict(sign(secret, id=MESSAGE["webhook_id"], body=MESSAGE_BODY, now=at))

    assert headers["webhook-signature"] == signature
    assert headers["webhook-timestamp"] == "1614265330"


# RFC 4231, HMAC-SHA-256 and HMAC-SHA-512; RFC 2202, HMAC-SHA-1.
MACS: list[tuple[Any, bytes, bytes, str]] = [
    ("sha256", b"Jefe", b"what do ya want for nothing?",
     "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
    ("sha512", b"Jefe", b"what do ya want for nothing?",
     ("164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"
      "9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737")),
    ("sha1", b"Jefe", b"what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
]  # fmt: skip


@pytest.mark.parametrize(("algorithm", "key", "content", "digest"), MACS)
@pytest.mark.parametrize("encoding", ["hex", "base64"])
def test_w001_the_macs_of_the_rfcs_are_those_of_the_generic_provider(
    algorithm: str, key: bytes, content: bytes, digest: str, encoding: str
) -> None:
    given = digest if encoding == "hex" else base64.b64encode(bytes.fromhex(digest)).decode()
    provider = Hmac(
        key.hex(),
        sender="rfc",
        header="X-Signature",
        secret_form="hex",
        algorithm=algorithm,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        encoding=encoding,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )

    assert verify(provider, request(x_signature=given), content, EPOCH).id.startswith("digest:")
