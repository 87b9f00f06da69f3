"""A body for every route that takes one.

They are in the OpenAPI document and on the reference page, and the tests send them as they stand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "putQueue": {
        "endpoint": "https://example.com/hooks/payments",
        "mode": "ack",
        "maxAttempts": 5,
        "backoff": {"type": "exponential", "base": 2, "factor": 2, "cap": 600},
        "ackTimeout": 120,
        "rateLimit": "100/s",
    },
    "publishJob": {
        "payload": {"orderId": "9482", "amountCents": 4999},
        "idempotencyKey": "order:9482:charge",
    },
    "publishJobs": {
        "items": [
            {"payload": {"userId": 1}, "uniqueKey": "digest:1", "uniqueWhile": "queued"},
            {"payload": {"userId": 2}, "uniqueKey": "digest:2", "delay": 60},
        ]
    },
    "heartbeatJob": {"lease": 60, "fence": 1},
    "deferJob": {"retryAfter": 30, "reason": "the bank is closed", "scope": "job", "fence": 1},
    "nackJob": {"retryable": True, "reason": "card declined", "fence": 2},
    "acknowledgeJob": {"result": {"receipt": "r-17"}, "fence": 3},
    "cancelJob": {"reason": "the order was withdrawn"},
    "replayJob": {"fresh": False},
    "replayDead": {"reason": "failed", "limit": 100},
    "claim": {"scope": "import", "key": "sha256:9f86d0", "lease": 60, "takeover": "rerun"},
    "renewClaim": {"lease": 60},
    "settleClaim": {"result": {"rows": 1200}},
    "releaseClaim": {},
    "lock": {"name": "nightly report", "ttl": 30},
    "renewLock": {"ttl": 30},
    "releaseLock": {},
    "putStep": {"action": "begin", "fence": 1},
    "rotateSecret": {"overlap": 86400},
    "putSchedule": {"cron": "0 6 * * *", "tz": "Europe/Berlin", "queue": "payments"},
    "settleKey": {"scope": "import", "result": {"rows": 0}},
    "releaseKey": {"scope": "import"},
}
"""By the name of the operation."""
PUSHED: Final[Mapping[str, Any]] = {
    "id": "019a8f3c-5b2e-7a41-9c3d-2f6e8d1b4a70",
    "queue": "payments",
    "payload": {"orderId": "9482", "amountCents": 4999},
    "attempt": 1,
    "maxAttempts": 5,
    "deferCount": 0,
    "createdAt": "2026-11-16T09:30:00.000Z",
    "kind": "payments",
    "fence": 1,
    "generation": 0,
}
"""What Onefold itself sends."""
