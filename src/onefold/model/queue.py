"""Queues: settings, limits, state and counts.

The engine's queues are names that all tenants share. The queue `payments` of the tenant `acme` is
the engine's queue `{acme}payments`; without a tenant it is `payments`. Names that users give have
no braces, so these names are distinct.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model import checks
from onefold.model.checks import parted, qualified
from onefold.model.job_options import checked_backoff, stored_keep
from onefold.model.lifecycle import Retention
from onefold.model.limit import Limit, parse_rate, stored_rate
from onefold.model.retry import Backoff
from onefold.model.timestamps import (
    MICROSECOND,
    Duration,
    Moment,
    duration_field,
    from_micros,
    set_durations,
    to_micros,
)
from onefold.model.wire import Attempts, decoder, encode

Mode: TypeAlias = Literal["standard", "ack"]
AckTimeoutAction: TypeAlias = Literal["retry", "dead"]
HoldReason: TypeAlias = Literal["backpressure", "deferred", "circuit"]

MODES: Final = ("standard", "ack")
ACTIONS: Final = ("retry", "dead")
HOLD_REASONS: Final = ("backpressure", "deferred", "circuit")
HELD: Final[dict[HoldReason, str]] = {
    "circuit": "pushes kept failing",
    "backpressure": "the endpoint asked for it",
    "deferred": "a job was deferred",
}
"""The reasons in words."""

TIMEOUTS: Final = (timedelta(milliseconds=100), timedelta(minutes=15))
"""The time that a push may take, at least and at most."""
ACK_TIMEOUTS: Final = (timedelta(seconds=1), timedelta(days=30))
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
CONFIDENTIAL: Final = frozenset({"headers", "signing_secret", "previous_secrets"})
"""Fields that only administrators may see, and that must not appear in a log."""


def _schema(bounds: tuple[timedelta, timedelta], *, default: float) -> msgspec.Meta:
    least, most = (bound.total_seconds() for bound in bounds)
    return msgspec.Meta(extra_json_schema={"minimum": least, "maximum": most, "default": default})


class SigningSecret(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A secret that signs pushes."""

    secret: str
    """In the format of Standard Webhooks: `whsec_` and base64."""
    expires_at: Moment | None = None
    """When it stops to sign."""

    def __repr__(self) -> str:
        # Without the secret, which must not appear in a log.
        return f"SigningSecret('whsec_…', {self.expires_at!r})"


class QueueSecrets(msgspec.Struct, frozen=True, rename="camel"):
    """The secrets that sign now, the newest first: a receiver may verify with any of them."""

    signing_secret: str | None
    """The newest."""
    secrets: tuple[SigningSecret, ...]
    """Every secret that signs now, the newest first."""


def new_secret() -> str:
    """A new random secret."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}"


class QueueSettings(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """The settings of a queue. `save` replaces all of them: what is left out has its default."""

    endpoint: str | None = None
    """The URL that jobs are POSTed to; without one, workers pull from the queue."""
    mode: Mode = "standard"
    """`standard`: a 2xx ends the job. `ack`: after a 2xx the job waits for an ack."""
    max_attempts: Attempts = 8
    """How many attempts a job has, unless it sets its own number."""
    backoff: Backoff | None = None
    """How long a job waits between two attempts; by default exponential, up to an hour."""
    retention: Retention | None = None
    """How long a job is kept after its end."""
    timeout: Annotated[Duration, _schema(TIMEOUTS, default=15)] = duration_field(seconds=15)
    """How long one push may take."""
    ack_timeout: Annotated[Duration, _schema(ACK_TIMEOUTS, default=300)] = duration_field(minutes=5)
    """In ack mode, how long a job waits for its ack; then it is retried, or dead."""
    ack_timeout_action: AckTimeoutAction = "retry"
    """What happens to a job whose ack does not arrive in time."""
    concurrency: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """How many jobs run at once, on all machines together."""
    rate_limit: str | None = None
    """How many jobs start per period: `100/m`, `10/30s`."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Sent with every push."""
    signing_secret: str | None = None
    """`whsec_` and base64. Left out, it stays, or is created for an endpoint that has none."""
    previous_secrets: tuple[SigningSecret, ...] = ()
    """Older secrets that also sign, until they expire."""
    paused: bool | None = None
    """Left out, it stays as it is."""
    paused_reason: str | None = None
    """Why it is paused, for operators."""

    def __post_init__(self) -> None:
        """A plain timedelta becomes a `Duration`."""
        set_durations(self, "timeout", "ack_timeout")

    @property
    def limit(self) -> Limit | None:
        """The limit of the whole queue."""
        return _limit(self.concurrency, self.rate_limit)

    @property
    def secrets(self) -> tuple[SigningSecret, ...]:
        """The secrets that sign, the newest first."""
        if self.signing_secret is None:
            return ()
        return (SigningSecret(self.signing_secret), *self.previous_secrets)

    def settings(self) -> QueueSettings:
        """The settings alone, also of a `Queue`."""
        return QueueSettings(
            **{name: getattr(self, name) for name in QueueSettings.__struct_fields__}
        )

    def rotated(self, secret: str, *, now: datetime, overlap: timedelta) -> QueueSettings:
        """With a new secret; the others sign until the end of the overlap at most."""
        until = now + overlap
        others = [one for one in self.secrets if one.secret != secret]
        ends = [until if one.expires_at is None else min(one.expires_at, until) for one in others]
        previous = [
            SigningSecret(one.secret, end)
            for one, end in zip(others, ends, strict=True)
            if end > now
        ]
        return replace(self, signing_secret=secret, previous_secrets=tuple(previous[: SECRETS - 1]))

    def __repr__(self) -> str:
        names = [name for name in self.__struct_fields__ if name not in CONFIDENTIAL]
        given = [
            f"{name}={value!r}" for name in names if (value := getattr(self, name)) is not None
        ]
        return f"{type(self).__name__}({', '.join(given)})"


DEFAULTS: Final = QueueSettings()


class QueueCounts(msgspec.Struct, frozen=True, gc=False):
    """The counts of a queue's jobs."""

    ready: int = 0
    """Due, and waiting for a worker or a push."""
    scheduled: int = 0
    """Queued for later, retries included."""
    running: int = 0
    """Jobs that wait for their ack included."""
    awaiting: int = 0
    """Waiting for their ack."""
    dead: int | None = 0
    """None if they were not counted."""

    def plus(self, other: QueueCounts) -> QueueCounts:
        """Added to the counts of another shard."""
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return QueueCounts(*(here + there for here, there in zip(mine, theirs, strict=True)))


class FailingCounts(msgspec.Struct, frozen=True, gc=False):
    """The counts of a queue's jobs that have failed."""

    retrying: int = 0
    dead: int = 0


class Queue(
    QueueSettings,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=False,
    forbid_unknown_fields=False,
):
    """A queue with its settings, its state, and the numbers of its jobs.

    Over HTTP, `headers`, `signing_secret` and `previous_secrets` are only in the response to the
    request that saves it.
    """

    name: str
    """The name of the queue."""
    tenant: str = ""
    """The tenant of the queue; empty for the operator."""
    paused: bool = False
    """True if none of its jobs starts."""
    header_names: tuple[str, ...] = ()
    """The names of the headers that are sent with every push."""
    group_concurrency: int | None = None
    """How many jobs of each group run at once."""
    group_rate_limit: str | None = None
    """How many jobs of each group start per period."""
    ordered: bool = False
    """The jobs of a group run one at a time, in the order of their enqueueing."""
    declared: bool = True
    """False if an operator has set the limits: then the limits of the code have no effect."""
    held_until: Moment | None = None
    """Until then no job is taken, and afterwards one job at a time until one succeeds."""
    held_why: HoldReason | None = None
    """Why it is held: the endpoint asked for it, a job was deferred, or pushes kept failing."""
    failures: int = 0
    """Failures of the endpoint in a row."""
    counts: QueueCounts | None = None
    """None unless requested."""
    oldest: Duration | None = None
    """How long the oldest ready job has been due. Counted with `counts`."""
    created_at: Moment | None = None
    """When it was saved first; None if it never was."""
    updated_at: Moment | None = None
    """When its settings were saved last."""

    @property
    def full_name(self) -> str:
        """Its name outside of its tenant."""
        return qualified(self.tenant, self.name)

    @property
    def is_new(self) -> bool:
        """True if its settings were not changed since it was created."""
        return self.created_at == self.updated_at

    @property
    def group_limit(self) -> Limit | None:
        """The limit of each group."""
        return _limit(self.group_concurrency, self.group_rate_limit)

    @classmethod
    def from_row(cls, row: Any) -> Queue:
        """From a row of any statement that returns queues."""
        queue, stored, created_at, updated_at, paused, held_until, held_why, failures = row[:8]
        declared, ordered, concurrency, count, period, of_group, group_count, group_period = row[8:]
        tenant, name = parted(queue)
        settings = QueueSettings() if stored is None else read_settings(stored)
        known = {field: getattr(settings, field) for field in QueueSettings.__struct_fields__}
        known |= {
            "paused": bool(paused),
            "paused_reason": settings.paused_reason if paused else None,
            "concurrency": concurrency,
            "rate_limit": _rate_text(count, period),
        }
        return cls(
            **known,
            tenant=tenant,
            name=name,
            header_names=tuple(sorted(settings.headers)),
            group_concurrency=of_group,
            group_rate_limit=_rate_text(group_count, group_period),
            ordered=bool(ordered),
            declared=bool(declared),
            held_until=_moment(held_until),
            held_why=held_why,
            failures=failures,
            created_at=_moment(created_at),
            updated_at=_moment(updated_at),
        )


class QueuePage(msgspec.Struct, frozen=True):
    """Some queues by name, and the cursor that continues after them."""

    queues: tuple[Queue, ...] = msgspec.field(name="items")
    """The queues of this page."""
    next: str | None = None
    """Pass it as `after=` for the next page; None on the last."""

    def __iter__(self) -> Iterator[Queue]:
        return iter(self.queues)

    def __len__(self) -> int:
        return len(self.queues)


def _limit(concurrency: int | None, rate: str | None) -> Limit | None:
    if concurrency is None and rate is None:
        return None
    return Limit(concurrency=concurrency, rate=rate)


def _rate_text(count: int | None, period: int | None) -> str | None:
    rate = stored_rate(count, period)
    return None if rate is None else str(rate)


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def encode_settings(settings: QueueSettings) -> str:
    """The stored form. Whether the queue is paused is stored in its row."""
    return encode(replace(settings, paused=None)).decode()


def read_settings(text: str) -> QueueSettings:
    """The settings that `encode_settings` wrote."""
    return _decoder.decode(text)


_decoder: Final[msgspec.json.Decoder[QueueSettings]] = decoder(QueueSettings)


# --- limits ---------------------------------------------------------------------------------------


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


def queue_limits(limit: Limit | None, group_limit: Limit | None, *, ordered: bool) -> QueueLimits:
    """Check the limits of a queue."""
    for name, value in (("limit", limit), ("group_limit", group_limit)):
        if value is not None and not isinstance(value, Limit):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(name, f"must be a Limit, got {value!r}")
    if limit is not None and limit.key is not None:
        raise InvalidInput("limit", "has a key, which only a group_limit can have")
    return QueueLimits(limit, group_limit, checks.flag(ordered, "ordered"))


# --- checks ---------------------------------------------------------------------------------------


def checked(settings: QueueSettings) -> QueueSettings:
    """The settings alone, or `InvalidInput` with the name of the setting."""
    if not isinstance(settings, QueueSettings):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput("settings", f"must be QueueSettings, got {settings!r}")
    _check_endpoint(settings.endpoint)
    _one_of(settings.mode, "mode", MODES)
    _one_of(settings.ack_timeout_action, "ack_timeout_action", ACTIONS)
    checks.attempts(settings.max_attempts)
    _check_timeout(settings.timeout, "timeout", TIMEOUTS)
    _check_timeout(settings.ack_timeout, "ack_timeout", ACK_TIMEOUTS)
    checked_backoff(settings.backoff)
    stored_keep(settings.retention)
    if settings.rate_limit is not None:
        parse_rate(settings.rate_limit, "rate_limit")
    _ = settings.limit
    _check_secrets(settings.signing_secret, settings.previous_secrets)
    _check_headers(settings.headers)
    if settings.paused is not None:
        checks.flag(settings.paused, "paused")
    if settings.paused_reason is not None:
        checks.text(settings.paused_reason, "paused_reason", longest=checks.REASON_BYTES)
    return settings.settings()


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


def _check_timeout(value: object, field: str, bounds: tuple[timedelta, timedelta]) -> None:
    least, most = bounds
    if not isinstance(value, timedelta) or not least <= value <= most:
        seconds = f"{least.total_seconds():.10g} to {most.total_seconds():.10g} seconds"
        got = f"{value.total_seconds():.10g}" if isinstance(value, timedelta) else repr(value)
        raise InvalidInput(field, f"must be {seconds}, got {got}")


def _check_secrets(current: str | None, previous: Sequence[SigningSecret]) -> None:
    if current is not None:
        check_secret(current, "signing_secret")
    if not isinstance(previous, tuple) or len(previous) >= SECRETS:
        raise InvalidInput("previous_secrets", f"must be a tuple of at most {SECRETS - 1} secrets")
    for one in previous:
        if not isinstance(one, SigningSecret):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput("previous_secrets", f"must be SigningSecrets, got {type(one)}")
        check_secret(one.secret, "previous_secrets")
        if one.expires_at is not None:
            to_micros(one.expires_at, "previous_secrets")
    if previous and current is None:
        raise ConflictingOptions(
            "previous_secrets", "need a current one: without it, all stored secrets stay"
        )


def check_secret(secret: object, field: str) -> None:
    """Reject a text that cannot sign."""
    if not _SECRET.fullmatch(checks.text(secret, field)):
        raise InvalidInput(field, "must be whsec_ and the base64 of 24 to 64 bytes")


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


# --- for workers ----------------------------------------------------------------------------------


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
