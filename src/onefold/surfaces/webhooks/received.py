"""What a handler of webhooks is given: the event, and the transaction it is part of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from onefold.calls.procedure import once_through
from onefold.errors import InvalidInput, OnefoldError
from onefold.model.claim import claim_key
from onefold.model.moment import to_micros
from onefold.surfaces.webhooks.ordering import apply_if_newer

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.app import Tenant
    from onefold.calls.procedure import Procedure
    from onefold.calls.within import Within
    from onefold.surfaces.http.request import Request
    from onefold.surfaces.webhooks.ordering import Ties
    from onefold.surfaces.webhooks.verified import Verified


class Refuse(OnefoldError):
    """Raise it in a handler: this event is not wanted, now or ever. Its rows are undone.

    The sender is told so by its own means: 410, and to Slack `X-Slack-No-Retry`. Senders of
    Standard Webhooks disable an endpoint that answers 410.
    """

    status = 410

    def __init__(self, reason: str = "it is not wanted") -> None:
        """`reason` is for your log; the sender is not told."""
        super().__init__(f"The webhook is refused for good: {reason}.", reason=reason)

    reason: str


class Received:
    """One event on its way through a handler."""

    def __init__(
        self,
        onefold: Tenant,
        verified: Verified,
        request: Request,
        *,
        connection: Any,
        scope: str,
        suspect: bool,
        retention: timedelta | None,
    ) -> None:
        """Made by the receiver."""
        self.verified: Verified = verified
        self.request: Request = request
        self.connection: Any = connection
        """Of the transaction that also remembers the event: what you write with it is committed
        with that, or not at all."""
        self.suspect: bool = suspect
        """True where the same body came before under another id that is not signed."""
        self._onefold = onefold
        self._scope = scope
        self._retention = retention

    @property
    def id(self) -> str:
        """By which the event is known again."""
        return self.verified.id

    @property
    def type(self) -> str | None:
        """What happened, in the sender's word."""
        return self.verified.event_type

    @property
    def body(self) -> bytes:
        """As it was received."""
        return self.verified.body

    def json(self) -> Any:
        """The event, decoded."""
        return self.verified.json()

    def within(self) -> Within:
        """Onefold inside the transaction: what is enqueued here is committed with the event."""
        return self._onefold.within(self.connection)

    def is_newest(self, subject: str, at: datetime | None = None, *, ties: Ties = "apply") -> bool:
        """Whether an object may be changed: False where a newer event about it was applied.

        `subject` names the object, `at` is when the event happened, by default in its own word. An
        event of the very same time is applied, unless `ties="ignore"`. A True is remembered with
        the rest of the transaction.
        """
        procedure = self._newest(subject, at, ties)
        return self.within()._conductor.run(procedure)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    async def ais_newest(
        self, subject: str, at: datetime | None = None, *, ties: Ties = "apply"
    ) -> bool:
        """`is_newest`, awaited."""
        procedure = self._newest(subject, at, ties)
        return await self.within()._conductor.arun(procedure)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def _newest(self, subject: str, at: datetime | None, ties: Ties) -> Procedure[bool]:
        when = self.verified.occurred_at if at is None else at
        if when is None:
            raise InvalidInput("at", "must be given: this event does not say when it happened")
        if ties not in ("apply", "ignore"):
            raise InvalidInput("ties", f"must be apply or ignore, got {ties!r}")
        tenant = self._onefold._tenant  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        key = claim_key(tenant, "webhook", f"order:{self._scope}", subject)
        return once_through(
            partial(
                apply_if_newer,
                key=key,
                at=to_micros(when, "at"),
                ties=ties,
                retention=self._retention,
            )
        )


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as the payload of a job: what the enqueue style stores of it.

    @onefold.job(kind="stripe.event")
    def process(event: StoredEvent) -> None: ...
    """

    provider: str
    endpoint: str
    id: str
    type: str | None = None
    body: bytes
    """As it was received; base64 in the job's payload."""
    content: bytes | None = None
    """The event itself, where the body wraps it."""
    headers: Mapping[str, str] = {}
    """Those that say something about the event: no signature among them."""
    timestamp: datetime | None = None
    occurred_at: datetime | None = None
    suspect: bool = False

    def json(self) -> Any:
        """The event, decoded."""
        return msgspec.json.decode(self.body if self.content is None else self.content)
