"""A schedule: which jobs it enqueues at each tick of a cron expression, also for missed ticks.

The functions do not read a clock: the database's time is an argument.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec

from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model import checks
from onefold.model.claim import ClaimKey
from onefold.model.ids import hash12, new_id
from onefold.model.job import Enqueued
from onefold.model.job_options import read_options
from onefold.model.json_text import decode_payload
from onefold.model.new_job import NewJobRow, Prepared, prepare
from onefold.model.timestamps import LATEST, MICROSECOND, from_micros
from onefold.model.unique import Unique
from onefold.model.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onefold.model.cron import Cron
    from onefold.model.job import Json, NewJob

CatchUp: TypeAlias = Literal["skip", "latest", "all"]

CATCH_UPS: Final[tuple[CatchUp, ...]] = get_args(CatchUp)
CATCH_UP_MOST: Final = 100
MOST: Final = range(1, 1001)

SURFACE: Final = "cron"
RETENTION: Final = timedelta(days=7) // MICROSECOND
"""How long the key of a tick is kept."""

GRACE: Final = timedelta(seconds=60) // MICROSECOND
"""With `skip`, a tick that is noticed later than this counts as missed."""

MINUTE: Final = timedelta(minutes=1) // MICROSECOND


class Template(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a schedule's jobs, except kind, queue and payload, as in `NewJobRow`."""

    priority: int = 0
    delay: int = 0
    max_attempts: int = 8
    fingerprint: str | None = None
    unique_kind: str | None = None
    unique_key: str | None = None
    unique_states: int = 0
    unique_for: int | None = None
    options: str | None = None
    group_key: str | None = None


_templates: Final = msgspec.json.Decoder(Template)


class ScheduleSettings(msgspec.Struct, frozen=True):
    """The checked settings of a schedule, in the order of the statement's columns."""

    tenant: str
    name: str
    cron: str
    zone: str
    kind: str
    queue: str
    payload: str
    options: str
    catch_up: int
    catch_up_most: int
    declared: bool


class Schedule(msgspec.Struct, frozen=True):
    """A stored schedule. The fields are in the order of the statements' columns."""

    tenant: str
    name: str
    cron: str
    tz: str
    kind: str
    queue: str
    payload_text: str
    options_text: str | None
    catch_up_number: int
    catch_up_most: int
    """With `all`, how many missed ticks get a job: the newest."""
    paused: bool
    declared: bool
    """True if code declares it, and may change it; False if `schedule()` created it."""
    next_tick_micros: int
    last_tick_micros: int | None
    updated_at_micros: int

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Schedule:
        """From a row of any statement that returns whole schedules; SQLite has no booleans."""
        values = list(row)
        for flag in _FLAGS:
            values[flag] = bool(values[flag])
        return cls(*values)

    @property
    def catch_up(self) -> CatchUp:
        """What happens with missed ticks."""
        return CATCH_UPS[self.catch_up_number]

    @property
    def payload(self) -> Json:
        """The payload of its jobs, decoded."""
        return decode_payload(self.payload_text)

    @property
    def next_tick(self) -> datetime:
        """When the next job is due."""
        return from_micros(self.next_tick_micros)

    @property
    def last_tick(self) -> datetime | None:
        """The newest tick that a job was enqueued for."""
        return None if self.last_tick_micros is None else from_micros(self.last_tick_micros)

    @property
    def updated_at(self) -> datetime:
        """When it was last changed."""
        return from_micros(self.updated_at_micros)

    def __repr__(self) -> str:
        """The fields that identify a schedule; the payload may be large or confidential."""
        return (
            f"Schedule(name={self.name!r}, cron={self.cron!r}, tz={self.tz!r}, kind={self.kind!r},"
            f" paused={self.paused}, next_tick={self.next_tick.isoformat()})"
        )


_FLAGS: Final = tuple(map(Schedule.__struct_fields__.index, ("paused", "declared")))


class Tick(msgspec.Struct, frozen=True):
    """One tick of a schedule, and the job that was enqueued for it."""

    tenant: str
    schedule: str
    at: datetime
    kind: str
    queue: str
    enqueued: Enqueued


class Ticked(msgspec.Struct, frozen=True):
    """The result of one check of the schedules."""

    ticks: tuple[Tick, ...] = ()
    """The ticks that this check enqueued jobs for."""
    next_at: datetime | None = None
    """When the next tick is due, as far as is known now."""
    wait: timedelta | None = None
    """The time until then by the database's clock: this machine's may differ."""
    broken: tuple[Broken, ...] = ()
    """Schedules that this process cannot read; another process may be able to."""


class Broken(msgspec.Struct, frozen=True):
    """A schedule that cannot be read here, and why."""

    tenant: str
    schedule: str
    reason: str


def load(cron: object, zone: object) -> Cron:
    """Check an expression. cronsim is imported on the first call."""
    try:
        from onefold.model.cron import cron_in
    except ImportError as error:
        raise InvalidInput(
            "cron", "needs cronsim; install it: pip install 'onefold[cron]'"
        ) from error
    return cron_in(cron, zone)


def wish(
    new_job: NewJob,
    tenant: str,
    *,
    name: str,
    cron: str,
    tz: str,
    catch_up: CatchUp,
    catch_up_most: int | None,
    declared: bool = False,
) -> ScheduleSettings:
    """Check the settings of a schedule."""
    checks.name(name, "name")
    load(cron, tz)
    if catch_up not in CATCH_UPS:
        raise InvalidInput("catch_up", f"must be skip, latest or all, got {catch_up!r}")
    if catch_up_most is not None:
        if catch_up != "all":
            raise ConflictingOptions("catch_up_most", 'needs catch_up="all"')
        if type(catch_up_most) is not int or catch_up_most not in MOST:
            raise InvalidInput(
                "catch_up_most",
                f"must be a whole number from {MOST[0]} to {MOST[-1]}, got {catch_up_most!r}",
            )
    _check_job(new_job)
    # The time only decides the buckets of derived keys, and there are none.
    request = prepare(new_job, tenant, now=0).request
    template = Template(*(getattr(request, field) for field in Template.__struct_fields__))
    return ScheduleSettings(
        tenant=tenant,
        name=name,
        cron=cron.strip(),
        zone=tz,
        kind=request.kind,
        queue=request.queue,
        payload=request.payload,
        options=msgspec.json.encode(template).decode(),
        catch_up=CATCH_UPS.index(catch_up),
        catch_up_most=CATCH_UP_MOST if catch_up_most is None else catch_up_most,
        declared=declared,
    )


def _check_job(new_job: NewJob) -> None:
    """Reject options that only a single job can have: a schedule enqueues many jobs."""
    for field in ("run_at", "expires_at", "idempotency_key", "request_id", "trace", "tick"):
        if getattr(new_job, field) is not None:
            raise ConflictingOptions(field, "applies to one job, but a schedule makes many")
    if isinstance(new_job.unique, Unique) and new_job.unique.bucket is not None:
        raise ConflictingOptions(
            "unique", "with a bucket cannot be used for a schedule: each tick already makes one job"
        )


def first_tick(cron: str, tz: str, now: int) -> int:
    """The first tick from now on."""
    first = load(cron, tz).after(from_micros(now))
    if first is None:
        raise InvalidInput("cron", f"never fires in fifty years, got {cron!r}")
    return _micros(first)


def shard_of_schedule(tenant: str, name: str, shards: int) -> int:
    """Where a schedule is stored."""
    return hash12(tenant, SURFACE, name) % shards if shards > 1 else 0


class Plan(msgspec.Struct, frozen=True):
    """The missed ticks that get a job, and when the schedule is due again."""

    schedule: Schedule
    ticks: tuple[int, ...]
    next_tick: int


def plan(schedule: Schedule, now: int) -> Plan | Broken:
    """The due ticks that get a job, by the schedule's policy; oldest first."""
    try:
        cron = load(schedule.cron, schedule.tz)
    except InvalidInput as error:
        return Broken(schedule.tenant, schedule.name, str(error))
    most = schedule.catch_up_most if schedule.catch_up == "all" else 1
    ticks = newest(cron, schedule.next_tick_micros, now, most=most)
    if schedule.catch_up == "skip":
        ticks = [tick for tick in ticks if now - tick <= GRACE]
    following = cron.after(from_micros(now))
    return Plan(schedule, tuple(ticks), LATEST if following is None else _micros(following))


def newest(cron: Cron, first: int, now: int, *, most: int) -> list[int]:
    """The last `most` ticks from `first` until now, oldest first.

    After a long pause there may be too many to visit each of them. Since no two ticks share a
    minute, a binary search finds the minute after which `most` of them are left.
    """
    few = [first, *islice(_ticks(cron, first, now), most)]
    if len(few) <= most:
        return few
    minutes = range((now - first) // MINUTE + 1)

    def is_enough(minute: int) -> bool:
        left = islice(_ticks(cron, first + minute * MINUTE, now), most + 1)
        return len(list(left)) <= most

    start = first + bisect_left(minutes, x=True, key=is_enough) * MINUTE
    return list(_ticks(cron, start, now))


def _ticks(cron: Cron, after: int, until: int) -> Iterator[int]:
    moment = cron.after(from_micros(after))
    while moment is not None and (tick := _micros(moment)) <= until:
        yield tick
        moment = cron.after(moment)


def tick_key(schedule: Schedule, tick: int) -> ClaimKey:
    """The key that only one job can have: the schedule's name and the tick in UTC."""
    return ClaimKey(schedule.tenant, SURFACE, schedule.name, tick_name(tick))


def tick_name(tick: int) -> str:
    """A tick in a key: 2026-03-29T01:00:00Z."""
    return from_micros(tick).isoformat().replace("+00:00", "Z")


def job_of(schedule: Schedule, tick: int, *, now: int, run_at: int | None = None) -> Prepared:
    """The job of a tick: the schedule's template, the tick and the tenant.

    It is due at the tick, so jobs for missed ticks run first, in their order.
    """
    text = schedule.options_text
    template = Template() if text is None else _templates.decode(text)
    options = read_options(template.options)
    metadata = {**(options.metadata or {}), "schedule": schedule.name}
    said = msgspec.structs.replace(options, tick=tick, metadata=metadata)
    run_at = tick + template.delay if run_at is None else run_at
    request = NewJobRow(
        id=_new_id(schedule.tenant, template),
        shard=0,
        tenant=schedule.tenant,
        queue=schedule.queue,
        kind=schedule.kind,
        priority=template.priority,
        run_at=run_at,
        delay=0,
        max_attempts=template.max_attempts,
        payload=schedule.payload_text,
        fingerprint=template.fingerprint,
        unique_kind=template.unique_kind,
        unique_key=template.unique_key,
        unique_states=template.unique_states,
        unique_for=template.unique_for,
        expires_at=None,
        options=encode(said).decode(),
        group_key=template.group_key,
    )
    return Prepared(request, state="scheduled" if run_at > now else "ready")


def _new_id(tenant: str, template: Template) -> str:
    """As for any job, a unique key decides the shard if there is one."""
    if template.unique_key is None or template.unique_kind is None:
        return new_id()
    return new_id(hash12(tenant, template.unique_kind, template.unique_key))


def _micros(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000
