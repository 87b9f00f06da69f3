"""Idempotency keys, webhooks and forms over HTTP; here are the values of their options."""

from __future__ import annotations

from onefold.effects.verify import Done, NotDone
from onefold.web.http import HttpRequest, HttpResponse
from onefold.web.idempotency.encryption import Sealing
from onefold.web.idempotency.fingerprint import Fields
from onefold.web.idempotency.key import KeyRules
from onefold.web.idempotency.policy import RoutePolicy
from onefold.web.idempotency.stored_response import Kept

__all__ = [
    "Done",
    "Fields",
    "HttpRequest",
    "HttpResponse",
    "Kept",
    "KeyRules",
    "NotDone",
    "RoutePolicy",
    "Sealing",
]
