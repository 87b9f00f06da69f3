"""Webhooks: verify → claim → process, in that order, once per event."""

from onefold.web.webhooks.generic import Hmac
from onefold.web.webhooks.github import GitHub
from onefold.web.webhooks.provider import BadSignature, Provider, Secret, verify
from onefold.web.webhooks.shopify import Shopify
from onefold.web.webhooks.signing import (
    Delivered,
    Disabled,
    SendFailed,
    Throttled,
    after_response,
    sign,
)
from onefold.web.webhooks.slack import Slack
from onefold.web.webhooks.standard import StandardWebhooks
from onefold.web.webhooks.stripe import Stripe, changed_object
from onefold.web.webhooks.twilio import Twilio
from onefold.web.webhooks.webhook import SecondKey, Webhook
from onefold.web.webhooks.webhook_event import Received, Refuse, StoredEvent, Verified

__all__ = [
    "BadSignature",
    "Delivered",
    "Disabled",
    "GitHub",
    "Hmac",
    "Provider",
    "Received",
    "Refuse",
    "SecondKey",
    "Secret",
    "SendFailed",
    "Shopify",
    "Slack",
    "StandardWebhooks",
    "StoredEvent",
    "Stripe",
    "Throttled",
    "Twilio",
    "Verified",
    "Webhook",
    "after_response",
    "changed_object",
    "sign",
    "verify",
]
