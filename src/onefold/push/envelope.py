"""What is sent: the body, which stands for all tries of a delivery, and the headers of one. Pure.

SimpleQ's members come first, and its signature is beside that of Standard Webhooks, so that
receivers of either find what they look for.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.model.identity import made_at
from onefold.model.moment import Iso
from onefold.model.served_queue import shown
from onefold.surfaces.webhooks.reading import mac

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from onefold.model.job import Job
    from onefold.surfaces.webhooks.outgoing import Signer
    from onefold.surfaces.webhooks.secret import Secret

FENCE: Final = "Onefold-Fence"
ATTEMPT: Final = "Onefold-Attempt"
SIMPLEQ: Final = "x-simpleq-signature"
OURS: Final = frozenset(
    {
        "accept-encoding", "connection", "content-length", "content-type", "expect", "host",
        "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "webhook-id",
        "webhook-signature", "webhook-timestamp", ATTEMPT.lower(), FENCE.lower(), SIMPLEQ,
    }
)  # fmt: skip
"""Headers that nobody sets but us."""


class Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """The body, as JSON."""

    id: str
    queue: str
    payload: Any
    attempt: int
    max_attempts: int
    defer_count: int
    created_at: Iso
    kind: str
    fence: int
    generation: int
    """Grows with a fresh replay, by which a receiver tells that from a redelivery."""


_encoder: Final = msgspec.json.Encoder()


def body_of(job: Job) -> bytes:
    """The bytes that are sent, and signed."""
    made = made_at(job.id).astimezone(UTC).isoformat(timespec="milliseconds")
    return _encoder.encode(
        Envelope(
            id=job.id,
            queue=shown(job.tenant, job.queue),
            # As it was stored: a number that only others can have survives.
            payload=msgspec.Raw(job.payload_text.encode()),
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            defer_count=job.defers,
            created_at=made.replace("+00:00", "Z"),
            kind=job.kind,
            fence=job.fence,
            generation=job.generation,
        )
    )


def headers_of(
    job: Job,
    body: bytes,
    signer: Signer | None,
    *,
    now: datetime,
    agent: str,
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The headers of one try: what the queue adds, and ours, which win."""
    headers = {name: text for name, text in (more or {}).items() if name.lower() not in OURS}
    headers["Content-Type"] = "application/json"
    headers["User-Agent"] = agent
    headers["Accept-Encoding"] = "identity"
    headers[FENCE] = str(job.fence)
    headers[ATTEMPT] = str(job.attempt)
    if signer is not None:
        headers.update(signer.sign(id=job.id, body=body, now=now))
        # With the text of a secret as it was shown, as SimpleQ's adapters do.
        secret = _only_secret(signer, now)
        headers[SIMPLEQ] = f"sha256={mac(secret.text.encode(), body).hex()}"
    return headers


def _only_secret(signer: Signer, now: datetime) -> Secret:
    """For a header with one signature: while secrets are rotated, the oldest that still signs.

    Its receiver knows one secret at a time, and changes over when the old one ends.
    """
    alive = [secret for secret, _ in signer.keys if not secret.expired(now)]
    ending = [secret for secret in alive if secret.until is not None]
    return ending[-1] if ending else alive[0]
