"""Slack: `X-Slack-Signature: v0=…`, over the timestamp and the body."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from onefold.surfaces.webhooks import reading
from onefold.surfaces.webhooks.provider import Provider
from onefold.surfaces.webhooks.rejection import BadSignature
from onefold.surfaces.webhooks.secret import Secret, matching
from onefold.surfaces.webhooks.urlencoded import payload
from onefold.surfaces.webhooks.verified import Verified

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from onefold.surfaces.http.request import Request


class Slack(Provider, frozen=True):
    """Slack's events, interactions and commands. An event is known by its `event_id`."""

    tolerance: timedelta = reading.FIVE_MINUTES

    name: ClassVar[str] = "slack"
    mistaken: ClassVar[dict[str, str]] = {"xox": "a token", "xapp-": "a token"}
    wanted: ClassVar[str] = "the signing secret of the app (Basic Information, App Credentials)"
    kept: ClassVar[tuple[str, ...]] = (
        "x-slack-request-timestamp", "x-slack-retry-num", "x-slack-retry-reason", "content-type",
    )  # fmt: skip
    no_retry: ClassVar[tuple[tuple[str, str], ...]] = (("X-Slack-No-Retry", "1"),)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        reading.check_tolerance(self.tolerance)

    def read(self, request: Request, body: bytes, now: datetime) -> Verified:
        """Check the signature."""
        stamp = reading.header(request, "x-slack-request-timestamp")
        given = reading.header(request, "x-slack-signature")
        signed_at = reading.seconds(stamp)
        if not given.startswith("v0="):
            raise BadSignature("no_usable_scheme", header="x-slack-signature")
        content = b"v0:%s:%s" % (stamp.encode(), body)

        def fits(secret: Secret) -> bool:
            expected = reading.mac(secret.text.encode(), content)
            return reading.is_hex(expected, given.removeprefix("v0="))

        secret = matching(self.ring, now, fits)
        reading.refuse_stale(signed_at, now, self.tolerance)
        wrapped = payload(request, body)
        event = reading.json_object(body if wrapped is None else wrapped)
        return Verified(
            provider=self.name,
            id=reading.text_of(event.get("event_id")) or f"digest:{reading.sha256(body)}",
            signed_id=True,
            secret_id=secret.id,
            body=body,
            content=wrapped,
            event_type=_type(event),
            timestamp=signed_at,
            occurred_at=reading.moment_of(event.get("event_time")),
        )

    def challenge(self, verified: Verified) -> str | None:
        """Slack's url_verification is answered with what it says, and is no event."""
        said = reading.json_object(verified.event)
        if said.get("type") != "url_verification":
            return None
        return reading.text_of(said.get("challenge"))


def _type(event: dict[str, object]) -> str | None:
    """What happened, where the event says so itself; else what was sent."""
    inner = event.get("event")
    found = inner.get("type") if isinstance(inner, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return reading.text_of(found) or reading.text_of(event.get("type"))  # pyright: ignore[reportUnknownArgumentType]
