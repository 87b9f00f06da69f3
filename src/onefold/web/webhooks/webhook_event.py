"""A verified event as its handler receives it, and the order of events per object.

Senders promise no order. A row per object has the time of the event that was last applied. It is
written in the handler's transaction, and only if it is unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from onefold.errors import Busy, DatabaseBusy, InvalidInput, OnefoldError
from onefold.model.claim import ClaimKey, StoredClaim, TakeOver, Wanted, Won, claim_key, want
from onefold.model.timestamps import to_micros
from onefold.operations import claims
from onefold.operations.unique_keys import ROUNDS
from onefold.web.webhooks.provider import sha256

if TYPE_CHECKING:
    from onefold.app.onefold import Tenant, Within
    from onefold.databases import Build
    from onefold.model.claim import Claim
    from onefold.operations.statement import Operation, Sql
    from onefold.web.http import HttpRequest


Ties: TypeAlias = Literal["apply", "ignore"]
"""What of events of the same time: many senders tell no more than the second."""

_WHOLE: Final = "0123456789-"


def apply_if_newer(
    sql: Sql, key: ClaimKey, at: int, *, ties: Ties, retention: timedelta | None
) -> Operation[bool]:
    """Store `at` (microseconds) as the time of an object; False if a newer one is stored."""
    for _ in range(ROUNDS):
        wanted = want(key, lease=None, retention=retention)
        answer = yield from claims.claim(sql, wanted)
        if isinstance(answer, Won):
            return (yield from _write(sql, answer.claim, at))
        if isinstance(answer, Busy):
            # The first event of this object is being applied in another transaction.
            raise answer
        seen = yield from claims.find(sql, key)
        if seen is None:
            continue
        if not _is_newer(at, _last(seen), ties):
            return False
        taken = yield from claims.take_over(sql, wanted, _as_seen(seen, wanted))
        if taken is not None:
            return (yield from _write(sql, taken, at))
    raise DatabaseBusy(
        f"the order of {key.key!r} was written {ROUNDS} times while we looked", waited=timedelta(0)
    )


def _write(sql: Sql, claim: Claim, at: int) -> Operation[bool]:
    yield from claims.settle(sql, [claims.Settlement(claim, str(at))])
    return True


def _as_seen(seen: StoredClaim, wanted: Wanted) -> TakeOver:
    return TakeOver(seen, wanted.id, fresh=True)


def _last(seen: StoredClaim) -> int | None:
    """The time that is stored; None if an operator has put something else there."""
    text = seen.result or ""
    return int(text) if text and all(sign in _WHOLE for sign in text) else None


def _is_newer(at: int, last: int | None, ties: Ties) -> bool:
    if last is None or at > last:
        return True
    return at == last and ties == "apply"


class Refuse(OnefoldError):
    """Raise it in a handler: this event is not wanted, now or ever. Its rows are undone.

    The sender receives 410, and Slack `X-Slack-No-Retry`. Senders of
    Standard Webhooks disable an endpoint that answers 410.
    """

    status = 410

    def __init__(self, reason: str = "it is not wanted") -> None:
        """`reason` is logged, and not sent."""
        super().__init__(f"The webhook is refused for good: {reason}.", reason=reason)

    reason: str


class Received:
    """One event on its way through a handler."""

    def __init__(
        self,
        onefold: Tenant,
        verified: Verified,
        request: HttpRequest,
        *,
        connection: Any,
        scope: str,
        suspect: bool,
        retention: timedelta | None,
    ) -> None:
        """Made by the receiver."""
        self.verified: Verified = verified
        self.request: HttpRequest = request
        self.connection: Any = connection
        """Of the transaction that also remembers the event: what you write with it is committed
        with that, or not at all."""
        self.suspect: bool = suspect
        """True if the same body came before under another id that is not signed."""
        self._onefold = onefold
        self._scope = scope
        self._retention = retention

    @property
    def id(self) -> str:
        """By which the event is known again."""
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
        """Onefold inside the transaction: what is enqueued here is committed with the event."""
        return self._onefold.within(self.connection)

    def is_newest(self, subject: str, at: datetime | None = None, *, ties: Ties = "apply") -> bool:
        """True if an object may be changed; False if a newer event about it was applied.

        `subject` names the object, `at` is when the event happened, by default in its own word. An
        event of the very same time is applied, unless `ties="ignore"`. A True is remembered with
        the rest of the transaction.
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
        tenant = self._onefold.context.tenant
        key = claim_key(tenant, "webhook", f"order:{self._scope}", subject)
        return partial(
            apply_if_newer,
            key=key,
            at=to_micros(when, "at"),
            ties=ties,
            retention=self._retention,
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
    """The event, if the body wraps it."""
    headers: Mapping[str, str] = {}
    """Headers about the event, without signatures."""
    timestamp: datetime | None = None
    occurred_at: datetime | None = None
    suspect: bool = False

    def json(self) -> Any:
        """The event, decoded."""
        return msgspec.json.decode(self.body if self.content is None else self.content)


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """An event, and what of it the signature covers."""

    provider: str
    id: str
    """The id of the sender, or a digest if it has none."""
    signed_id: bool
    """True if the signature covers the id. Otherwise a captured event can be sent again under
    another id."""
    secret_id: str
    """Which secret it was signed with."""
    body: bytes
    """As it was received."""
    content: bytes | None = None
    """The event, if the body wraps it (forms of GitHub and Slack)."""
    event_type: str | None = None
    timestamp: datetime | None = None
    """The signed time of the signature, if there is one."""
    occurred_at: datetime | None = None
    """The time of the event in its body; the same in every delivery."""
    key: str | None = None
    """The key, if the id is not enough: shop, topic and event of Shopify."""
    digest: str = ""
    """Of what must be the same in a redelivery."""
    guard: str | None = None
    """A digest by which a replay under another id is known; None if the id is signed."""
    old_secret: bool = False
    """Whether the secret is not the current one: rotate on."""

    def __post_init__(self) -> None:
        """Set what follows from the body."""
        if not self.digest:
            msgspec.structs.force_setattr(self, "digest", sha256(self.body))

    @property
    def event(self) -> bytes:
        """The event: the body, or the part of it that is the event."""
        return self.body if self.content is None else self.content

    def json(self) -> Any:
        """The event, decoded. A body that is not JSON raises `msgspec.DecodeError`."""
        return msgspec.json.decode(self.event)

    def __repr__(self) -> str:
        """Without the body: this may be logged."""
        return f"Verified(provider={self.provider!r}, id={self.id!r}, type={self.event_type!r})"
