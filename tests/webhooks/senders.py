"""Senders: requests that are signed as each provider signs, by code of its own."""

import base64
import hashlib
import hmac
from datetime import datetime
from urllib.parse import urlencode

from onefold.web.http import HttpRequest
from onefold.web.webhooks import Provider, verify

WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
WHPK = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
WHSK = (
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
)
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
FORM = "application/x-www-form-urlencoded"


def request(path: str = "/hooks", /, **headers: str | None) -> HttpRequest:
    """A POST; `webhook_id` is the header webhook-id, and None leaves one out."""
    bare, _, query = path.partition("?")
    return HttpRequest(
        method="POST",
        path=bare,
        query=query,
        headers=tuple(
            (name.replace("_", "-"), value) for name, value in headers.items() if value is not None
        ),
    )


def seconds(at: datetime) -> str:
    return str(int(at.timestamp()))


def standard(
    body: bytes, at: datetime, *, event_id: str = "msg_1", secret: str = WHSEC, stamp: str = ""
) -> HttpRequest:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    stamp = stamp or seconds(at)
    content = f"{event_id}.{stamp}.".encode("latin-1", "replace") + body
    made = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return request(webhook_id=event_id, webhook_timestamp=stamp, webhook_signature=f"v1,{made}")


def stripe(body: bytes, at: datetime, *, secret: str = SECRET, stamp: str = "") -> HttpRequest:
    stamp = stamp or seconds(at)
    made = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return request(stripe_signature=f"t={stamp},v1={made}")


def github(
    body: bytes, *, delivery: str | None = "d-1", event: str = "push", secret: str = SECRET,
    content_type: str = "application/json",
) -> HttpRequest:  # fmt: skip
    made = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return request(
        x_hub_signature_256=f"sha256={made}",
        x_github_delivery=delivery,
        x_github_event=event,
        content_type=content_type,
    )


def shopify(
    body: bytes, *, event_id: str | None = "e-1", topic: str = "orders/create",
    shop: str = "tea.myshopify.com", secret: str = SECRET, **more: str | None,
) -> HttpRequest:  # fmt: skip
    made = base64.b64encode(hmac.new(secret.encode(), body, hashlib.sha256).digest()).decode()
    headers: dict[str, str | None] = {
        "x_shopify_hmac_sha256": made,
        "x_shopify_event_id": event_id,
        "x_shopify_topic": topic,
        "x_shopify_shop_domain": shop,
    }
    return request(**{**headers, **more})


def slack(
    body: bytes, at: datetime, *, secret: str = SECRET, stamp: str = "", **more: str
) -> HttpRequest:
    stamp = stamp or seconds(at)
    content = b"v0:" + stamp.encode() + b":" + body
    made = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
    return request(x_slack_request_timestamp=stamp, x_slack_signature=f"v0={made}", **more)


def twilio_form(
    fields: dict[str, str], *, url: str, path: str, secret: str = SECRET, token: str | None = None
) -> tuple[HttpRequest, bytes]:
    content = url + path + "".join(name + fields[name] for name in sorted(fields))
    made = base64.b64encode(hmac.new(secret.encode(), content.encode(), hashlib.sha1).digest())
    asked = request(
        path,
        x_twilio_signature=made.decode(),
        content_type=FORM,
        i_twilio_idempotency_token=token,
    )
    return asked, urlencode(fields).encode()


def accepted(provider: Provider, asked: HttpRequest, body: bytes, now: datetime) -> bool:
    """Whether a request is verified; it raises where not."""
    return verify(provider, asked, body, now).body == body
