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
from onefold.model.ids import hash12
from onefold.model.job import DEFAULT_QUEUE, Enqueued, JobTemplate, Json, NewJob
from onefold.model.json_text import decode_payload
from onefold.model.new_job import Prepared, prepare
from onefold.model.timestamps import (
    LATEST,
    MICROSECOND,
    Moment,
    from_micros,
    set_durations,
    to_micros,
)
from onefold.model.unique import Unique
from onefold.model.wire import decoder, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onefold.model.cron import Cron

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


class ScheduleSettings(
    JobTemplate,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """The settings of a schedule and of its jobs."""

    cron: str
    """Five fields, or a name like `@daily`."""
    tz: str = "UTC"
    """The time zone of the expression, by its IANA name."""
    queue: str = DEFAULT_QUEUE
    """The queue of its jobs; the settings of this queue apply to them."""
    kind: str | None = None
    """By default the name of the queue."""
    payload_json: msgspec.Raw = msgspec.field(
        name="payload", default_factory=lambda: msgspec.Raw(b"{}")
    )
    """The payload of each of its jobs: any JSON."""
    catch_up: CatchUp = "latest"
    """What happens to missed ticks."""
    catch_up_most: int | None = None
    """With `all`, how many missed ticks get a job: the newest; by default 100."""

    def __post_init__(self) -> None:
        """A plain timedelta becomes a `Duration`."""
        set_durations(self, "delay", "unique_for", "timeout")

    @property
    def payload(self) -> Json:
        """The payload of its jobs, decoded."""
        return decode_payload(self.payload_json)


class Schedule(
    ScheduleSettings,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=False,
    forbid_unknown_fields=False,
):
    """A stored schedule."""

    tenant: str
    """The tenant of the schedule; empty for the operator."""
    name: str
    """The name of the schedule."""
    kind: str = ""
    """The kind of its jobs."""
    max_attempts: int = 8
    """How many attempts each of its jobs has."""
    paused: bool = False
    """True if it enqueues no jobs."""
    declared: bool = False
    """True if code declares it, and may change it; False if `save` created it."""
    next_tick: Moment | None = None
    """When the next job is due; None while it is paused."""
    last_tick: Moment | None = None
    """The newest tick that a job was enqueued for."""
    updated_at: Moment | None = None
    """When it was saved last."""

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Schedule:
        """From a row of any statement that returns whole schedules."""
        tenant, name, cron, zone, kind, queue, payload, options, catch_up, most = row[:10]
        paused, declared, next_tick, last_tick, updated_at = row[10:15]
        return cls(
            **msgspec.structs.asdict(_templates.decode(options)),
            tenant=tenant,
            name=name,
            cron=cron,
            tz=zone,
            kind=kind,
            queue=queue,
            payload_json=msgspec.Raw(payload),
            catch_up=CATCH_UPS[int(catch_up)],
            catch_up_most=most,
            paused=bool(paused),
            declared=bool(declared),
            next_tick=None if paused else from_micros(next_tick),
            last_tick=None if last_tick is None else from_micros(last_tick),
            updated_at=from_micros(updated_at),
        )

    def local(self, tick: datetime | None) -> datetime | None:
        """A tick in the zone of the schedule; in UTC if this machine does not know the zone."""
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            return tick and tick.astimezone(ZoneInfo(self.tz))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return tick

    @property
    def size(self) -> int:
        """The bytes of its payload."""
        return len(bytes(self.payload_json))

    @property
    def row(self) -> dict[str, Any]:
        """The columns of its settings."""
        template = {name: getattr(self, name) for name in JobTemplate.__struct_fields__}
        return {
            "tenant": self.tenant,
            "schedule": self.name,
            "cron": self.cron,
            "zone": self.tz,
            "kind": self.kind,
            "queue": self.queue,
            "payload": bytes(self.payload_json).decode(),
            "options": encode(JobTemplate(**template)).decode(),
            "catch_up": CATCH_UPS.index(self.catch_up),
            "catch_up_most": self.catch_up_most,
            "declared": self.declared,
        }

    def __repr__(self) -> str:
        # Without the payload: it may be large or confidential.
        return (
            f"Schedule(name={self.name!r}, cron={self.cron!r}, tz={self.tz!r}, kind={self.kind!r},"
            f" paused={self.paused}, next_tick={self.next_tick})"
        )


_templates: Final = decoder(JobTemplate)


class SchedulePage(msgspec.Struct, frozen=True):
    """Some schedules by name, and the cursor that continues after them."""

    schedules: tuple[Schedule, ...] = msgspec.field(name="items")
    """The schedules of this page."""
    next: str | None = None
    """Pass it as `after=` for the next page; None on the last."""


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


def new_schedule(
    new_job: NewJob,
    tenant: str,
    *,
    name: str,
    cron: str,
    tz: str = "UTC",
    catch_up: CatchUp = "latest",
    catch_up_most: int | None = None,
    declared: bool = False,
) -> Schedule:
    """Check the settings of a schedule, and resolve what follows from its payload."""
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
    given = {field: getattr(new_job, field) for field in JobTemplate.__struct_fields__}
    given |= {"unique_key": request.unique_key, "tags": tuple(new_job.tags)}
    return Schedule(
        **given,
        tenant=tenant,
        name=name,
        cron=cron.strip(),
        tz=tz,
        kind=request.kind,
        queue=request.queue,
        payload_json=msgspec.Raw(request.payload),
        catch_up=catch_up,
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
    most = (schedule.catch_up_most if schedule.catch_up == "all" else None) or 1
    assert schedule.next_tick is not None, "a paused schedule is never due"
    ticks = newest(cron, to_micros(schedule.next_tick, "next_tick"), now, most=most)
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
    template = {name: getattr(schedule, name) for name in JobTemplate.__struct_fields__}
    due_at = from_micros(tick if run_at is None else run_at)
    template |= {
        "delay": None,
        "run_at": due_at + (schedule.delay or timedelta(0)) if run_at is None else due_at,
        "tick": from_micros(tick),
        "metadata": {**(schedule.metadata or {}), "schedule": schedule.name},
    }
    new_job = NewJob(schedule.kind, schedule.payload_json, queue=schedule.queue, **template)
    return prepare(new_job, schedule.tenant, now=now)


def _micros(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000
