"""Queues: their limits, counts and settings, as the library and the server see them.

The engine's queues are names that all tenants share. The server's queue `payments` of the tenant
`acme` is the engine's queue `{acme}payments`; without a tenant it is `payments`. Names that users
give contain no braces, so these names are distinct.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.model.checks import qualified
from onefold.model.job_options import checked_backoff, stored_keep
from onefold.model.lifecycle import Retention
from onefold.model.limit import Limit, Rate
from onefold.model.retry import Backoff
from onefold.model.timestamps import MICROSECOND, from_micros, to_micros
from onefold.model.wire import decoder, encode

StoredLimit: TypeAlias = tuple[int | None, int | None, int | None]
"""Concurrency, and the count and period of a rate."""


class QueueLimits(msgspec.Struct, frozen=True):
    """The limits of a queue, set by the code or by an operator."""

    limit: Limit | None = None
    """Of the whole queue."""
    group_limit: Limit | None = None
    """Of each of its groups."""
    ordered: bool = False
    """The jobs of a group run one at a time, in the order of their enqueueing."""

    @property
    def controlled(self) -> bool:
        """True if there is a limit or an order."""
        limits = (self.limit, self.group_limit)
        limiting = any(one and (one.concurrency or one.rate) for one in limits)
        return self.ordered or limiting

    @property
    def stored(self) -> tuple[StoredLimit, StoredLimit]:
        """Both limits as they are stored."""
        return _stored(self.limit), _stored(self.group_limit)


def _stored(limit: Limit | None) -> StoredLimit:
    if limit is None:
        return (None, None, None)
    if limit.rate is None:
        return (limit.concurrency, None, None)
    return (limit.concurrency, limit.rate.count, limit.rate.period // MICROSECOND)


def stored_limit(concurrency: int | None, count: int | None, period: int | None) -> Limit | None:
    """A stored limit; its key is not stored: only enqueues use it, from the code."""
    rate = stored_rate(count, period)
    if concurrency is None and rate is None:
        return None
    return Limit(concurrency=concurrency, rate=rate)


def stored_rate(count: int | None, period: int | None) -> Rate | None:
    """A rate as it was stored."""
    return None if count is None or period is None else Rate(count, period * MICROSECOND)


def queue_limits(limit: Limit | None, group_limit: Limit | None, *, ordered: bool) -> QueueLimits:
    """Check the limits of a queue."""
    for name, value in (("limit", limit), ("group_limit", group_limit)):
        if value is not None and not isinstance(value, Limit):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(name, f"must be a Limit, got {value!r}")
    if limit is not None and limit.key is not None:
        raise InvalidInput("limit", "has a key, which only a group_limit can have")
    return QueueLimits(limit, group_limit, checks.flag(ordered, "ordered"))


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its settings and the counts of its jobs."""

    name: str
    paused: bool = False
    limit: Limit | None = None
    group_limit: Limit | None = None
    ordered: bool = False
    declared: bool = True
    """False if an operator has set the limits: then the limits of the code have no effect."""
    ready: int = 0
    """Queued and due."""
    oldest: timedelta | None = None
    """How long the oldest of those has been due."""
    scheduled: int = 0
    """Queued for later, retries included."""
    running: int = 0
    held_until: datetime | None = None
    """Until then no job is taken, and afterwards one job at a time until one succeeds."""
    held_why: str | None = None
    """`backpressure`, `deferred` or `circuit`."""


class Outlook(msgspec.Struct, frozen=True, gc=False):
    """The state of a queue for an idle worker."""

    queue: str
    paused: bool
    controlled: bool
    """True if a plain take returns no job: limited, ordered or held."""
    due: bool
    """A job without a group is due."""
    due_grouped: bool
    """A job with a group is due, though its group may have to wait."""
    next_at: int | None
    """When the next job will be due, in microseconds since the epoch."""
    now: int
    """The database's clock at the time of the query."""

    @property
    def wait(self) -> int | None:
        """Microseconds until the next job will be due."""
        return None if self.next_at is None else max(0, self.next_at - self.now)

    def joined(self, other: Outlook) -> Outlook:
        """Combined with the same queue on another shard."""
        ahead = [at for at in (self.next_at, other.next_at) if at is not None]
        return Outlook(
            self.queue,
            self.paused or other.paused,
            self.controlled or other.controlled,
            self.due or other.due,
            self.due_grouped or other.due_grouped,
            min(ahead, default=None),
            other.now,
        )


def queue_names(queues: object) -> list[str]:
    """Names of queues, each once, in the order given."""
    listed = checks.listed(queues, "queues", "names")
    return list(dict.fromkeys(checks.queue(queue, "queues") for queue in listed))


Mode: TypeAlias = Literal["standard", "ack"]
AckTimeoutAction: TypeAlias = Literal["retry", "dead"]
HeldWhy: TypeAlias = Literal["backpressure", "deferred", "circuit"]

MODES: Final = ("standard", "ack")
ACTIONS: Final = ("retry", "dead")
HELD_WHYS: Final = ("backpressure", "deferred", "circuit")

TIMEOUTS: Final = (0.1, 900.0)
"""Seconds that a push may take, at least and at most."""
ACK_TIMEOUTS: Final = (1.0, 30 * 24 * 60 * 60.0)
URL_LENGTH: Final = 2_048
SECRETS: Final = 10
SECRET_BYTES: Final = 32
HEADERS: Final = 50
HEADER_BYTES: Final = 8_192

_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_RESERVED: Final = re.compile(
    r"webhook-.*|onefold-.*|x-simpleq-signature|host|content-(type|length|encoding)"
    r"|transfer-encoding|connection|expect|upgrade|user-agent",
    re.IGNORECASE,
)


class SigningSecret(NamedTuple):
    """A secret that signs pushes."""

    text: str
    """In the format of Standard Webhooks: `whsec_` and base64."""
    expires_at: datetime | None = None
    """The end of its rotation: from then on it does not sign."""

    def __repr__(self) -> str:
        """Without the secret, which must not appear in a log."""
        return f"Secret('whsec_…', {self.expires_at!r})"


def new_secret() -> SigningSecret:
    """A new random secret."""
    return SigningSecret(f"whsec_{base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}")


def rotated(
    signing: Sequence[SigningSecret], text: str, *, now: datetime, overlap: timedelta
) -> tuple[SigningSecret, ...]:
    """The new secret first; the others until the end of the overlap, without expired ones."""
    until = now + overlap
    old = [
        SigningSecret(one.text, until if one.expires_at is None else min(one.expires_at, until))
        for one in signing
        if one.text != text
    ]
    alive = [one for one in old if one.expires_at is not None and one.expires_at > now]
    return (SigningSecret(text), *alive[: SECRETS - 1])


class QueueConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue of the server. Durations are seconds."""

    endpoint: str | None = None
    """The URL that jobs are pushed to; without one, workers pull."""
    mode: Mode = "standard"
    """`standard`: a response of 2xx finishes the job. `ack`: the worker sends an ack later."""
    max_attempts: int = 8
    backoff: Backoff | None = None
    timeout: float = 15.0
    """Of one push."""
    ack_timeout: float = 300.0
    """In ack mode, from the response to the worker's ack."""
    ack_timeout_action: AckTimeoutAction = "retry"
    concurrency: int | None = None
    rate: str | None = None
    """As `100/m` or `10/30s`."""
    retention: Retention | None = None
    secrets: tuple[SigningSecret, ...] = ()
    """The newest first. If none is given, the stored ones are kept."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Sent with every push."""
    paused_reason: str | None = None
    """Why it was paused, for operators."""

    @property
    def limit(self) -> Limit | None:
        """The limit for the engine."""
        if self.concurrency is None and self.rate is None:
            return None
        return Limit(concurrency=self.concurrency, rate=self.rate)


class QueueCounts(msgspec.Struct, frozen=True, gc=False):
    """The counts of a queue's jobs."""

    ready: int = 0
    scheduled: int = 0
    """Queued for later, retries included."""
    running: int = 0
    """Jobs that wait for their ack included."""
    awaiting: int = 0
    dead: int = 0

    def plus(self, other: QueueCounts) -> QueueCounts:
        """Added to the counts of another shard."""
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return QueueCounts(*(here + there for here, there in zip(mine, theirs, strict=True)))


class ServedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of the server, with its settings and its state."""

    tenant: str
    name: str
    configuration: QueueConfiguration
    created_at: datetime
    updated_at: datetime
    paused: bool = False
    held_until: datetime | None = None
    """Set while no job is taken, and afterwards while one job at a time is taken."""
    held_why: HeldWhy | None = None
    failures: int = 0
    """Failed pushes to its endpoint, in a row."""
    counts: QueueCounts | None = None
    """None if they were not requested."""
    is_new: bool = False
    """True in the response to the request that created it."""

    @property
    def queue(self) -> str:
        """Its name in the engine."""
        return qualified(self.tenant, self.name)

    @classmethod
    def from_row(cls, row: Any) -> ServedQueue:
        """From a row of any statement that returns served queues."""
        tenant, name, settings, created_at, updated_at, paused, held_until, held_why, failures = row
        return cls(
            tenant=tenant,
            name=name,
            configuration=read_configuration(settings),
            created_at=from_micros(created_at),
            updated_at=from_micros(updated_at),
            paused=bool(paused),
            held_until=None if held_until is None else from_micros(held_until),
            held_why=held_why,
            failures=failures,
        )


# --- checks ---------------------------------------------------------------------------------------


def checked(configuration: QueueConfiguration) -> QueueConfiguration:
    """The same configuration, or `InvalidInput` with the name of the setting."""
    if not isinstance(configuration, QueueConfiguration):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput("configuration", f"must be a QueueConfiguration, got {configuration!r}")
    _check_endpoint(configuration.endpoint)
    _one_of(configuration.mode, "mode", MODES)
    _one_of(configuration.ack_timeout_action, "ack_timeout_action", ACTIONS)
    checks.attempts(configuration.max_attempts)
    _check_seconds(configuration.timeout, "timeout", TIMEOUTS)
    _check_seconds(configuration.ack_timeout, "ack_timeout", ACK_TIMEOUTS)
    checked_backoff(configuration.backoff)
    stored_keep(configuration.retention)
    _ = configuration.limit
    _check_secrets(configuration.secrets)
    _check_headers(configuration.headers)
    if configuration.paused_reason is not None:
        checks.text(configuration.paused_reason, "paused_reason", longest=checks.REASON_BYTES)
    return configuration


def _check_endpoint(endpoint: object) -> None:
    """Check the URL. Each push checks whether its address may be reached."""
    if endpoint is None:
        return
    if not isinstance(endpoint, str) or not 1 <= len(endpoint) <= URL_LENGTH:
        raise InvalidInput("endpoint", f"must be a URL of at most {URL_LENGTH} characters")
    if not endpoint.isascii() or not endpoint.isprintable() or " " in endpoint:
        raise InvalidInput("endpoint", f"must be visible ASCII characters, got {endpoint!r}")
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInput("endpoint", f"must be a URL, got {endpoint!r}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidInput("endpoint", f"must be an http or https URL, got {endpoint!r}")
    if parts.username is not None or parts.fragment:
        raise InvalidInput("endpoint", "must have no user, password or fragment: use headers")


def _one_of(value: object, field: str, words: tuple[str, ...]) -> None:
    if value not in words:
        raise InvalidInput(field, f"must be {' or '.join(words)}, got {value!r}")


def _check_seconds(value: object, field: str, bounds: tuple[float, float]) -> None:
    least, most = bounds
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidInput(field, f"must be {least:g} to {most:g} seconds, got {value!r}")


def _check_secrets(given: Sequence[SigningSecret]) -> None:
    if not isinstance(given, tuple) or len(given) > SECRETS:
        raise InvalidInput("secrets", f"must be a tuple of at most {SECRETS} secrets")
    for secret in given:
        if not isinstance(secret, SigningSecret):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput("secrets", f"must hold each as a Secret, got {type(secret)}")
        if not _SECRET.fullmatch(checks.text(secret.text, "secrets")):
            raise InvalidInput("secrets", "must each be whsec_ and the base64 of 24 to 64 bytes")
        if secret.expires_at is not None:
            to_micros(secret.expires_at, "secrets")


# 24 to 64 bytes, padded or not.
_SECRET: Final = re.compile(r"whsec_(?=.{32,88}$)[A-Za-z0-9+/]{32,86}={0,2}")


def _check_headers(headers: Mapping[str, str]) -> None:
    if not isinstance(headers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput("headers", f"must be a mapping, got {headers!r}")
    if len(headers) > HEADERS:
        raise InvalidInput("headers", f"must be at most {HEADERS}, got {len(headers)}")
    for name, value in headers.items():
        if not _HEADER.fullmatch(checks.text(name, "headers")):
            raise InvalidInput("headers", f"must have names of HTTP, got {name!r}")
        if _RESERVED.fullmatch(name):
            raise InvalidInput("headers", f"must leave {name} to Onefold")
        if not _HEADER_VALUE.fullmatch(checks.text(value, "headers", longest=HEADER_BYTES)):
            raise InvalidInput("headers", f"must give {name} visible ASCII text")


# --- the stored form ------------------------------------------------------------------------------


class _Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings as JSON. Times are microseconds."""

    endpoint: str | None = None
    mode: Mode = "standard"
    max_attempts: int = 8
    backoff: Backoff | None = None
    timeout: float = 15.0
    ack_timeout: float = 300.0
    ack_timeout_action: AckTimeoutAction = "retry"
    concurrency: int | None = None
    rate: str | None = None
    keep: dict[str, int] | None = None
    secrets: tuple[tuple[str, int | None], ...] = ()
    headers: dict[str, str] | None = None
    paused_reason: str | None = None


_decoder: Final = decoder(_Stored)


def encode_configuration(configuration: QueueConfiguration) -> str:
    """The checked values as text."""
    stored = _Stored(
        configuration.endpoint,
        configuration.mode,
        configuration.max_attempts,
        checked_backoff(configuration.backoff),
        configuration.timeout,
        configuration.ack_timeout,
        configuration.ack_timeout_action,
        configuration.concurrency,
        configuration.rate,
        stored_keep(configuration.retention),
        tuple((text, _micros(expires_at)) for text, expires_at in configuration.secrets),
        dict(configuration.headers) or None,
        configuration.paused_reason,
    )
    return encode(stored).decode()


def read_configuration(text: str) -> QueueConfiguration:
    """The settings that `encode_configuration` wrote."""
    stored = _decoder.decode(text)
    return QueueConfiguration(
        endpoint=stored.endpoint,
        mode=stored.mode,
        max_attempts=stored.max_attempts,
        backoff=stored.backoff,
        timeout=stored.timeout,
        ack_timeout=stored.ack_timeout,
        ack_timeout_action=stored.ack_timeout_action,
        concurrency=stored.concurrency,
        rate=stored.rate,
        retention=None if stored.keep is None else _retention(stored.keep),
        secrets=tuple(SigningSecret(text, _moment(at)) for text, at in stored.secrets),
        headers=stored.headers or {},
        paused_reason=stored.paused_reason,
    )


def _retention(keep: Mapping[str, int]) -> Retention:
    spans: dict[str, timedelta] = {outcome: kept * MICROSECOND for outcome, kept in keep.items()}
    return Retention(**spans)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment, "secrets")


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
