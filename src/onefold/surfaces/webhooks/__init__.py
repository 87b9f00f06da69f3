"""Webhooks: verify → claim → process, in that order, once per event."""

from onefold.surfaces.webhooks.generic import Hmac
from onefold.surfaces.webhooks.github import GitHub
from onefold.surfaces.webhooks.outgoing import (
    Delivered,
    Disabled,
    Failed,
    Throttled,
    after_response,
    sign,
)
from onefold.surfaces.webhooks.provider import Provider, verify
from onefold.surfaces.webhooks.received import Received, Refuse, StoredEvent
from onefold.surfaces.webhooks.receiver import Webhook
from onefold.surfaces.webhooks.rejection import BadSignature
from onefold.surfaces.webhooks.secret import Secret
from onefold.surfaces.webhooks.settings import SecondKey
from onefold.surfaces.webhooks.shopify import Shopify
from onefold.surfaces.webhooks.slack import Slack
from onefold.surfaces.webhooks.standard import StandardWebhooks
from onefold.surfaces.webhooks.stripe import Stripe, changed_object
from onefold.surfaces.webhooks.twilio import Twilio
from onefold.surfaces.webhooks.verified import Verified

__all__ = [
    "BadSignature",
    "Delivered",
    "Disabled",
    "Failed",
    "GitHub",
    "Hmac",
    "Provider",
    "Received",
    "Refuse",
    "SecondKey",
    "Secret",
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
