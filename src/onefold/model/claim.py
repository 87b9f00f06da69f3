"""A claim: one key taken by one attempt, and the result for a later attempt.

`decide` contains the rule, in this order: expired → mismatch → replay → busy → takeover. Each
surface translates its result.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias

import msgspec

from onefold.errors import Busy, ConflictingOptions, InvalidInput
from onefold.model import checks
from onefold.model.ids import advisory_lock_key, hash12, length_prefixed, new_id
from onefold.model.json_text import decode_payload, encode_payload
from onefold.model.timestamps import Moment, from_micros, span
from onefold.model.unique import fingerprint as digest

Takeover: TypeAlias = Literal["rerun", "resume", "refuse"]
Guarantee: TypeAlias = Literal["exactly once", "at least once", "at most once"]

TAKEOVERS: Final[tuple[Takeover, ...]] = ("rerun", "resume", "refuse")
RESULT_BYTES: Final = 1024 * 1024

# A retry sooner than this is of no use.
JOINED_RETRY: Final = timedelta(seconds=1)


class Holding(IntEnum):
    """The stored state of a claim."""

    HELD = 0
    SETTLED = 1
    FREE = 2
    """Released unsettled. The row is kept for a while so that its fence cannot decrease."""


ClaimPlace: TypeAlias = tuple[int, str, str, str, str]


class ClaimKey(msgspec.Struct, frozen=True, order=True):
    """Identifies a key: the columns of the unique constraint, in lock order."""

    tenant: str
    surface: str
    scope: str
    key: str
    home: int | None = None
    """Decides the shard instead of the key: keys of a job are stored beside it."""

    def lock(self, schema: str) -> int:
        """The number of the advisory lock of this key.

        Advisory locks are shared by the whole database, and each of its schemas is an
        installation.
        """
        return advisory_lock_key(schema, self.tenant, self.surface, self.scope, self.key)

    def place(self, shards: int) -> ClaimPlace:
        """The columns of the constraint, the shard first; tuples of them sort in lock order."""
        shard = self.hash % shards if shards > 1 else 0
        return (shard, self.tenant, self.surface, self.scope, self.key)

    @property
    def hash(self) -> int:
        """The hash that decides the shard."""
        if self.home is not None:
            return self.home
        return hash12(self.tenant, self.surface, self.scope, self.key)

    @property
    def steps(self) -> str:
        """The scope of the steps of all attempts with this key, beside it on its shard."""
        return f"claim:{self.derived('')}"

    @property
    def notes(self) -> str:
        """The id of the notes about suppressed duplicates: a UUID that no job has.

        It belongs to the key and not to one attempt, so a takeover leaves no notes behind.
        """
        digits = blake2b(
            length_prefixed(self.tenant, self.surface, self.scope, self.key), digest_size=16
        ).hexdigest()
        # Version 8: a custom format. Ids of jobs have version 7.
        return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"

    def derived(self, name: str) -> str:
        """A key for a third party: the same in each attempt with this key and name.

        Best effort: it works as long as the third party remembers it.
        """
        return digest(self.tenant, self.surface, self.scope, self.key, name)


def claim_key(tenant: str, surface: str, scope: object, key: object) -> ClaimKey:
    """Check the parts of a key."""
    return ClaimKey(
        tenant, checks.name(surface, "surface"), checks.text(scope, "scope"), checks.key(key, "key")
    )


class Wanted(msgspec.Struct, frozen=True):
    """What an attempt requests."""

    key: ClaimKey
    id: str
    """Made by the client: the id of this claim, and of the attempt that owns it. A retry after a
    lost response finds its own claim.
    """
    fingerprint: str | None = None
    lease: int | None = None
    """Microseconds; None: the caller's transaction is the lease."""
    takeover: Takeover = "refuse"
    keep: int | None = None
    """Microseconds from the settling; None: until it is removed."""

    @property
    def joined(self) -> bool:
        """Claim, work and result commit in the caller's transaction."""
        return self.lease is None

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for the effect."""
        if self.joined:
            return "exactly once"
        return "at most once" if self.takeover == "refuse" else "at least once"


def want(
    key: ClaimKey,
    *,
    fingerprint: str | None = None,
    lease: timedelta | None,
    takeover: Takeover = "refuse",
    retention: timedelta | None = None,
) -> Wanted:
    """Check the settings of an attempt."""
    if takeover not in TAKEOVERS:
        raise InvalidInput("takeover", f"must be rerun, resume or refuse, got {takeover!r}")
    if fingerprint is not None:
        checks.key(fingerprint, "fingerprint")
    least = timedelta(microseconds=1)
    return Wanted(
        key=key,
        id=new_id(),
        fingerprint=fingerprint,
        lease=None if lease is None else span(lease, "lease", least=least),
        takeover=takeover,
        keep=None if retention is None else span(retention, "retention", least=least),
    )


class StoredClaim(msgspec.Struct, frozen=True):
    """A stored claim. The fields are in the order of find_claim's columns."""

    id: str
    owner: str
    state: int
    fence: int
    fingerprint: str | None
    takeover: int
    lease_until: int | None
    expires_at: int | None
    result: str | None
    now: int
    """The database's clock at the time of the query."""
    created_at: int | None = None
    """When this attempt took the key. None from find_claims."""

    @property
    def running(self) -> timedelta:
        """The time since then."""
        return timedelta(microseconds=0 if self.created_at is None else self.now - self.created_at)


class Claim(msgspec.Struct, frozen=True):
    """A held key: use it to settle, release or renew."""

    key: ClaimKey
    id: str
    """The same after a `resume`, new after a `rerun`: the scope of stored steps."""
    owner: str
    fence: int
    lease_until: datetime | None
    guarantee: Guarantee
    resumed: bool = False
    """True if an earlier attempt vanished and its finished steps still count."""


def checked_claim(value: object) -> Claim:
    """A claim, as `claim()` returned it in a `Won`."""
    if not isinstance(value, Claim):
        raise InvalidInput("claim", f"must be a Claim (the claim of a Won), got {value!r}")
    return value


class Won(msgspec.Struct, frozen=True):
    """The key is held now; do the work."""

    claim: Claim


class Replay(msgspec.Struct, frozen=True):
    """The work was done before; `result` is its stored result."""

    result: Any
    id: str


class Mismatch(msgspec.Struct, frozen=True):
    """The key was used with another request."""

    key: str
    fingerprint: str | None = None
    """The stored one, to decide whether both requests are the same. Not for the client."""


class Unknown(msgspec.Struct, frozen=True):
    """The attempt that had the key vanished, and its takeover is `refuse`."""

    key: str
    fence: int
    since: datetime | None


ClaimAnswer: TypeAlias = Won | Replay | Busy | Mismatch | Unknown


class ClaimReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The response to a claim over HTTP: the key is held now, or a result is stored for it."""

    outcome: Literal["won", "replay"]
    """`won`: the key is yours, do the work. `replay`: the work was done before."""
    surface: str
    """The surface of the key."""
    scope: str
    """The scope of the key."""
    key: str
    """The key."""
    id: str | msgspec.UnsetType = msgspec.UNSET
    """Identifies the claim in the requests that settle, release and renew it."""
    fence: int | msgspec.UnsetType = msgspec.UNSET
    """Grows with each attempt: the systems that you write to can reject a smaller one."""
    lease_until: Moment | msgspec.UnsetType | None = msgspec.UNSET
    """When the claim ends unless a heartbeat extends it."""
    guarantee: Guarantee | msgspec.UnsetType = msgspec.UNSET
    """How often the work can take effect if its worker vanishes."""
    resumed: bool | msgspec.UnsetType = msgspec.UNSET
    """True if an earlier attempt vanished, and its finished steps still count."""
    result: Any = msgspec.UNSET
    """Of a replay: what the first attempt stored."""

    @property
    def claim(self) -> Claim:
        """The claim of a client. The server identifies its owner by the id."""
        assert isinstance(self.id, str)
        assert isinstance(self.fence, int)
        return Claim(
            ClaimKey("", self.surface, self.scope, self.key),
            self.id,
            self.id,
            self.fence,
            self.lease_until or None,
            self.guarantee or "at least once",
            bool(self.resumed),
        )


class Renewed(msgspec.Struct, frozen=True, rename="camel"):
    """The response to a renewal over HTTP."""

    lease_until: Moment
    """The new end of the lease."""


class TakeOver(msgspec.Struct, frozen=True):
    """Not a result yet: the row may be taken if it has not changed since."""

    seen: StoredClaim
    id: str
    fresh: bool
    """True if nothing of the earlier attempt counts any more."""


def decide(found: StoredClaim, wanted: Wanted) -> ClaimAnswer | TakeOver:
    """The result of a stored claim for an attempt that requests its key."""
    state, now = Holding(found.state), found.now
    expired = state is Holding.SETTLED and found.expires_at is not None and found.expires_at <= now
    if state is Holding.FREE or expired:
        return TakeOver(found, wanted.id, fresh=True)
    if found.owner == wanted.id:
        # A response was lost. Only a resume keeps an id that is not its own.
        resumed = found.id != wanted.id
        return Won(own(wanted, found.id, found.fence, found.lease_until, resumed=resumed))
    if _differs(found.fingerprint, wanted.fingerprint):
        return Mismatch(wanted.key.key, found.fingerprint)
    if state is Holding.SETTLED:
        return Replay(decode_result(found.result), found.id)
    return _decide_held(found, wanted)


def _differs(stored: str | None, given: str | None) -> bool:
    return stored is not None and given is not None and stored != given


def _decide_held(found: StoredClaim, wanted: Wanted) -> ClaimAnswer | TakeOver:
    now = found.now
    if found.lease_until is not None and found.lease_until > now:
        return Busy(key=wanted.key.key, retry_after=timedelta(microseconds=found.lease_until - now))
    takeover = TAKEOVERS[found.takeover]
    if takeover == "refuse":
        since = None if found.lease_until is None else from_micros(found.lease_until)
        return Unknown(wanted.key.key, found.fence, since)
    resumes = takeover == "resume"
    return TakeOver(found, found.id if resumes else wanted.id, fresh=not resumes)


def own(
    wanted: Wanted, claim_id: str, fence: int, lease_until: int | None, *, resumed: bool = False
) -> Claim:
    """The claim of an attempt that holds the key, now or before."""
    return Claim(
        key=wanted.key,
        id=claim_id,
        owner=wanted.id,
        fence=fence,
        lease_until=None if lease_until is None else from_micros(lease_until),
        guarantee=wanted.guarantee,
        resumed=resumed,
    )


def encode_result(result: Any) -> str:
    """The stored text of a result."""
    try:
        text = encode_payload(result)
    except InvalidInput as error:
        raise InvalidInput("result", error.reason) from error
    if (size := len(text.encode())) > RESULT_BYTES:
        raise InvalidInput("result", f"must have at most {RESULT_BYTES} bytes, got {size}")
    return text


def decode_result(text: str | None) -> Any:
    """The result of a stored text."""
    return None if text is None else decode_payload(text)


def refuse_leased_within(**options: object) -> None:
    """Reject options without a meaning inside a caller's transaction, which is the lease."""
    for field, value in options.items():
        if value is not None:
            raise ConflictingOptions(
                field,
                "is for leased claims; inside within() the claim, the work and the result commit"
                " together",
            )
