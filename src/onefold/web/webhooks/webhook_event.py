"""A verified event as its handler receives it, and the order of events per object.

Senders do not guarantee an order. A row per object has the time of the event that was last applied.
It is written in the handler's transaction, and only if it is unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from onefold.errors import Busy, DatabaseBusy, InvalidInput, OnefoldError
from onefold.model.claim import ClaimKey, TakeOver, Won, claim_key, want
from onefold.model.timestamps import to_micros
from onefold.operations import claims
from onefold.operations.unique_keys import ROUNDS
from onefold.web.webhooks.provider import sha256

if TYPE_CHECKING:
    from onefold.app.onefold import Within
    from onefold.databases import Build
    from onefold.operations.statement import Operation, Sql
    from onefold.web.http import HttpRequest
    from onefold.web.webhooks.webhook import WebhookSettings

Ties: TypeAlias = Literal["apply", "ignore"]
"""What happens to an event with the time of the last one: many senders use whole seconds."""


class Refuse(OnefoldError):
    """Raise it in a handler to reject an event permanently. The rows of the handler are undone.

    The sender receives 410, and Slack `X-Slack-No-Retry`. Senders of Standard Webhooks disable an
    endpoint that responds with 410.
    """

    status = 410
    reason: str

    def __init__(self, reason: str = "it is not wanted") -> None:
        """`reason` is logged, and not sent."""
        super().__init__(f"The webhook is rejected permanently: {reason}.", reason=reason)


class WebhookContent(msgspec.Struct, frozen=True, kw_only=True):
    """What a sender has sent."""

    provider: str
    id: str = ""
    """The id of the sender, or `digest:` and a digest if it has none."""
    body: bytes
    """As it was received; base64 in the payload of a job."""
    content: bytes | None = None
    """The event, if the body wraps it (forms of GitHub and Slack)."""
    timestamp: datetime | None = None
    """The signed time of the signature, if there is one."""
    occurred_at: datetime | None = None
    """The time of the event in its body; the same in every delivery."""

    @property
    def event(self) -> bytes:
        """The event: the body, or the part of it that is the event."""
        return self.body if self.content is None else self.content

    def json(self) -> Any:
        """The event, decoded. A body that is not JSON raises `msgspec.DecodeError`."""
        return msgspec.json.decode(self.event)


class Verified(WebhookContent, frozen=True, kw_only=True):
    """An event with a valid signature."""

    secret_id: str
    """The id of the secret that it was signed with."""
    event_type: str | None = None
    key: str | None = None
    """The key, if the id is not enough: shop, topic and event of Shopify."""
    digest: str = ""
    """A digest of what must be the same in a redelivery; by default of the body."""
    guard: str | None = None
    """A digest that recognises a replay under another id; None if the id is signed."""
    old_secret: bool = False
    """True if the secret is not the current one: the sender still uses an old secret."""

    def __post_init__(self) -> None:
        if not self.digest:
            msgspec.structs.force_setattr(self, "digest", sha256(self.body))
        if not self.id:
            msgspec.structs.force_setattr(self, "id", f"digest:{self.digest}")

    def __repr__(self) -> str:
        # Without the body: this may be logged.
        return f"Verified(provider={self.provider!r}, id={self.id!r}, type={self.event_type!r})"


class StoredEvent(WebhookContent, frozen=True, kw_only=True):
    """An event as the payload of a job, if the webhook enqueues jobs.

    @onefold.job(kind="stripe.event")
    def process(event: StoredEvent) -> None: ...
    """

    endpoint: str
    type: str | None = None
    headers: Mapping[str, str] = {}
    """Headers about the event, without signatures."""
    suspect: bool = False


class Received:
    """An event as its handler receives it."""

    def __init__(
        self,
        settings: WebhookSettings,
        verified: Verified,
        request: HttpRequest,
        *,
        connection: Any,
        scope: str,
        suspect: bool,
    ) -> None:
        """Made by the receiver."""
        self.verified: Verified = verified
        self.request: HttpRequest = request
        self.connection: Any = connection
        """The connection of the transaction that also stores the event's id. Your rows are
        committed with it, or not at all."""
        self.suspect: bool = suspect
        """True if the same body was received before under another id that is not signed."""
        self._settings = settings
        self._scope = scope

    @property
    def id(self) -> str:
        """The id of the event."""
        return self.verified.id

    @property
    def type(self) -> str | None:
        """The sender's name for what happened."""
        return self.verified.event_type

    @property
    def body(self) -> bytes:
        """As it was received."""
        return self.verified.body

    def json(self) -> Any:
        """The event, decoded."""
        return self.verified.json()

    def within(self) -> Within:
        """Onefold inside the transaction: jobs that you enqueue are committed with the event."""
        return self._settings.onefold.within(self.connection)

    def is_newest(self, subject: str, at: datetime | None = None, *, ties: Ties = "apply") -> bool:
        """True if an object may be changed; False if a newer event about it was applied.

        `subject` names the object. `at` is the time of the event, by default the one in its body.
        An event with the time of the last one is applied, unless `ties="ignore"`. True is stored in
        the transaction.
        """
        return self.within().context.store.transact(self._newest(subject, at, ties))

    async def ais_newest(
        self, subject: str, at: datetime | None = None, *, ties: Ties = "apply"
    ) -> bool:
        """`is_newest`, awaited."""
        return await self.within().context.store.atransact(self._newest(subject, at, ties))

    def _newest(self, subject: str, at: datetime | None, ties: Ties) -> Build[bool]:
        when = self.verified.occurred_at if at is None else at
        if when is None:
            raise InvalidInput("at", "must be given: this event has no time")
        if ties not in ("apply", "ignore"):
            raise InvalidInput("ties", f"must be apply or ignore, got {ties!r}")
        settings = self._settings
        key = claim_key(settings.tenant, "webhook", f"order:{self._scope}", subject)
        micros, retention = to_micros(when, "at"), settings.order_retention
        return partial(_apply_if_newer, key=key, at=micros, ties=ties, retention=retention)

    def stored(self) -> StoredEvent:
        """The event as the payload of a job."""
        verified, settings = self.verified, self._settings
        kept = (*settings.provider.kept, "content-type")
        headers = {name.lower(): value for name, value in self.request.headers}
        return StoredEvent(
            provider=verified.provider,
            endpoint=settings.name,
            id=verified.id,
            type=verified.event_type,
            body=verified.body,
            content=verified.content,
            headers={name: headers[name] for name in kept if name in headers},
            timestamp=verified.timestamp,
            occurred_at=verified.occurred_at,
            suspect=self.suspect,
        )


def _apply_if_newer(
    sql: Sql, key: ClaimKey, at: int, *, ties: Ties, retention: timedelta | None
) -> Operation[bool]:
    """Store `at` (microseconds) as the time of an object; False if a newer one is stored."""
    for _ in range(ROUNDS):
        wanted = want(key, lease=None, retention=retention)
        answer = yield from claims.claim(sql, wanted)
        if isinstance(answer, Busy):
            # The first event of this object is being applied in another transaction.
            raise answer
        claim = answer.claim if isinstance(answer, Won) else None
        if claim is None:
            seen = yield from claims.find(sql, key)
            if seen is None:
                continue
            if not _is_newer(at, seen.result, ties):
                return False
            claim = yield from claims.take_over(sql, wanted, TakeOver(seen, wanted.id, fresh=True))
        if claim is not None:
            yield from claims.settle(sql, [claims.Settlement(claim, str(at))])
            return True
    raise DatabaseBusy(
        f"the order of {key.key!r} was written {ROUNDS} times while we looked", waited=timedelta(0)
    )


def _is_newer(at: int, stored: str | None, ties: Ties) -> bool:
    try:
        last = int(stored or "")
    except ValueError:
        # An operator has stored something else.
        return True
    return at > last or (at == last and ties == "apply")
