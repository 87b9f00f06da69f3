"""Jobs for users: `NewJob` to enqueue, `Enqueued`, the stored `Job`, and its deliveries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    overload,
)

import msgspec

from onefold.errors import InvalidInput, UsageError
from onefold.model.job_options import TAGS, read_options
from onefold.model.json_text import decode_payload, is_object
from onefold.model.lifecycle import Retention, State
from onefold.model.retry import Backoff
from onefold.model.timestamps import MICROSECOND, Duration, Moment, from_micros
from onefold.model.unique import Unique
from onefold.model.wire import Attempts, Priority

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)
    Tags: TypeAlias = Sequence[str]
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)
    # The codec makes a tuple; callers may give any sequence.
    Tags = Annotated[tuple[str, ...], msgspec.Meta(max_length=TAGS)]

UniqueWhile: TypeAlias = Literal["queued", "active", "exists"]
OnDuplicate: TypeAlias = Literal["keep", "raise", "replace", "rerun"]
OnMismatch: TypeAlias = Literal["flag", "raise"]
JobState: TypeAlias = Literal[
    "scheduled", "ready", "running", "retrying", "awaiting", "completed", "dead", "cancelled"
]
Json: TypeAlias = Any
DEFAULT_QUEUE: Final = "default"
DEFAULT_ATTEMPTS: Final = 8
DAY: Final = timedelta(hours=24)
KeyRule: TypeAlias = Unique | Callable[[str, Json], str]


class Results(Protocol):
    """Waits for results of jobs."""

    def wait(self, job_id: str, timeout: timedelta | None) -> Job:
        """The job, once it is completed."""
        ...

    async def await_result(self, job_id: str, timeout: timedelta | None) -> Job:  # noqa: ASYNC109 - sync and async wait alike
        """`wait`, awaited."""
        ...


class Asks:
    """A value that may be bound to an object that waits for results.

    The binding is not a field: it is not compared, printed or pickled.
    """

    __slots__ = ("_read", "_results")

    _results: Results
    _read: Callable[[Job], Any]
    """Converts the result of a completed job; without it, the result is the stored JSON."""


# Values are frozen, but these are not fields.
set_results: Final[Callable[[Asks, Results], None]] = Asks.__dict__["_results"].__set__
set_read: Final[Callable[[Asks, Callable[[Job], Any]], None]] = Asks.__dict__["_read"].__set__


class Awaited(Asks, Generic[R_co]):
    """An enqueued job whose result its caller can wait for."""

    __slots__ = ()

    id: str

    def result(self, *, timeout: timedelta | None = None) -> R_co:
        """Wait until the job has ended, and return its handler's result, if that is stored.

        Raises `JobFailed` if it is dead or cancelled, `ResultTimeout` if it has not ended after
        `timeout` (None: no limit), `JobNotFound` if it was pruned. A duplicate waits for the
        existing job.
        """
        return self._read_result(self._source().wait(self.id, timeout))

    async def aresult(self, *, timeout: timedelta | None = None) -> R_co:  # noqa: ASYNC109 - sync and async wait alike
        """`result`, awaited."""
        return self._read_result(await self._source().await_result(self.id, timeout))

    def _source(self) -> Results:
        results: Results | None = getattr(self, "_results", None)
        if results is None:
            raise UsageError(
                "This answer does not know its database any more (it was copied, or sent to another"
                f" process). Look at the job itself: onefold.get({self.id!r})."
            )
        return results

    def _read_result(self, job: Job) -> R_co:
        read: Callable[[Job], R_co] | None = getattr(self, "_read", None)
        return job.result if read is None else read(job)


class JobTemplate(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """The options that new jobs, jobs over HTTP and the jobs of a schedule have in common."""

    priority: Priority = 0
    """Lower runs first."""
    delay: Duration | None = None
    """How long the job waits before it is due."""
    max_attempts: Attempts | None = None
    """By default the queue's, as are backoff and retention."""
    unique_key: str | None = None
    """While a job holds this key, an enqueue with it returns that job."""
    unique_while: UniqueWhile | None = None
    """`active` if neither this nor `unique_for` is given."""
    unique_for: Duration | None = None
    """How long the unique key is held, counted from the enqueue."""
    across_kinds: bool = False
    """The key is shared by all kinds of the tenant."""
    backoff: Backoff | None = None
    """How long the job waits between two attempts."""
    retention: Retention | None = None
    """How long the job is kept after its end."""
    timeout: Duration | None = None
    """How long one attempt may take, for workers that pull; by default that of the kind."""
    group_key: str | None = None
    """Jobs of one group share its limits and, in an ordered queue, run one after the other."""
    tags: Tags = ()
    """Words to find the job by."""
    metadata: Mapping[str, Json] | None = None
    """Data about the job beside its payload; not part of its fingerprint."""
    store_result: bool | None = None
    """Store the handler's result; by default as the kind declares."""


class NewJobTemplate(JobTemplate, frozen=True, kw_only=True):
    """A template that is complete: no queue fills in the attempts."""

    max_attempts: Attempts = DEFAULT_ATTEMPTS


class NewJob(NewJobTemplate, frozen=True):
    """A job to be enqueued. All fields but the kind have a default."""

    kind: str
    payload: Json = msgspec.field(default_factory=dict[str, Json])
    queue: str = DEFAULT_QUEUE
    run_at: datetime | None = None
    expires_at: datetime | None = None
    unique: KeyRule | None = None
    """Derives the unique key from the payload; an explicit `unique_key` has precedence."""
    idempotency_key: str | None = None
    idempotency_for: timedelta = DAY
    request_id: str | None = None
    """Stored with a suppressed duplicate, to find out why it was suppressed."""
    trace: Mapping[str, str] | None = None
    """The trace context that the run continues."""
    tick: datetime | None = None
    """The moment of a schedule that the job was enqueued for."""


class Enqueued(msgspec.Struct, Awaited[R_co], frozen=True, gc=False):
    """The job of the request, new or existing. Its caller can wait for the result."""

    id: str
    """The id of the job: a UUID that sorts by time."""
    duplicate: bool = False
    """True if the job existed before."""
    state: JobState | None = "ready"
    """The state of that job; None if only its publish key is stored."""
    mismatch: bool = False
    """True if the key was used with another request."""
    replaced: bool = False
    """True if the existing job has taken the payload of this request."""

    @property
    def inserted(self) -> bool:
        """True if this call created the job."""
        return not self.duplicate


class EnqueuedMany(msgspec.Struct, Asks, Generic[R_co], frozen=True):
    """One `Enqueued` per item, in order, and the counts. It is read as a sequence."""

    items: tuple[Enqueued[R_co], ...]
    """The job of each item, in the order of the request."""
    inserted: int
    """How many jobs are new."""
    skipped: int
    """How many items found an earlier job, or repeat an earlier item."""
    next: str | None = None
    """Continues a call by filter that reached its limit (`after=`); None at the end."""

    @classmethod
    def of(
        cls,
        items: Sequence[Enqueued[R_co]],
        results: Results | None = None,
        *,
        next: str | None = None,  # noqa: A002 - the name of the field
    ) -> EnqueuedMany[R_co]:
        """Count `items`, which are in the order of the request; `results` waits for them."""
        inserted = sum(item.inserted for item in items)
        many = cls(tuple(items), inserted, len(items) - inserted, next)
        if results is not None:
            set_results(many, results)
        return many

    @overload
    def __getitem__(self, index: int) -> Enqueued[R_co]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Enqueued[R_co], ...]: ...
    def __getitem__(self, index: int | slice) -> Enqueued[R_co] | tuple[Enqueued[R_co], ...]:
        """Item or slice, as of a tuple."""
        found = self.items[index]
        return tuple(map(self._asking, found)) if isinstance(found, tuple) else self._asking(found)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Enqueued[R_co]]:
        return map(self._asking, self.items)

    def __repr__(self) -> str:
        # Without the items: there may be thousands.
        return f"EnqueuedMany(inserted={self.inserted}, skipped={self.skipped})"

    def _asking(self, item: Enqueued[R_co]) -> Enqueued[R_co]:
        """Bind an item on access: most items of a large batch are never read."""
        for name, bind in (("_results", set_results), ("_read", set_read)):
            if (value := getattr(self, name, None)) is not None:
                bind(item, value)
        return item


class Job(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A stored job."""

    id: str
    """The id of the job: a UUID that sorts by time."""
    tenant: str
    """The tenant of the job; empty for the operator."""
    kind: str
    """What kind of work it is; by default the name of the queue."""
    queue: str
    """The queue of the job."""
    state: JobState
    """When the job was read."""
    priority: int
    """Lower runs first."""
    attempt: int
    """How many attempts it has used."""
    max_attempts: int
    """How many attempts it has in all."""
    fence: int
    """Of its last delivery; 0 before the first."""
    generation: int
    """Grows with a fresh replay."""
    defers: int = msgspec.field(name="deferCount")
    """How often it was deferred since it was enqueued or replayed."""
    worker: str | None
    """Of its last delivery."""
    unique_key: str | None
    """The key that no other job can hold at the same time."""
    idempotency_key: str | None
    """The publish key that it was created with, without keys that were added later."""
    group_key: str | None
    """The group whose limits and order apply to it."""
    tags: tuple[str, ...]
    """Words to find the job by."""
    metadata: Mapping[str, Json]
    """Data about the job beside its payload."""
    trace: Mapping[str, str] | None
    """The trace context that the run continues."""
    timeout: Duration | None
    """How long one attempt may take, if the job sets it."""
    backoff: Backoff | None
    """How long it waits between two attempts, if the job sets it."""
    retention: Retention | None
    """How long it is kept after its end, if the job sets it."""
    store_result: bool | None
    """Whether the handler's result is stored; None: the default of the kind."""
    run_at: Moment
    """When it is or was due."""
    created_at: Moment
    """When it was enqueued, by the database's clock."""
    taken_at: Moment | None
    """When the last delivery began."""
    lease_until: Moment | None
    """The end of the current delivery's lease."""
    ended_at: Moment | None
    """When it was completed, buried or cancelled."""
    expires_at: Moment | None
    """When it is buried if it has not ended before."""
    tick: Moment | None
    """The moment of a schedule that it was enqueued for."""
    reason: str | None
    """Why it ended."""
    error: Mapping[str, Any] | None
    """The last failure: type and message."""
    pushed: Mapping[str, Any] | None
    """The last response of the endpoint that it was pushed to: fence, status, duration, excerpt."""
    payload_json: msgspec.Raw = msgspec.field(name="payload")
    """The input of the work: the JSON that was published."""
    result_json: msgspec.Raw | msgspec.UnsetType = msgspec.field(
        name="result", default=msgspec.UNSET
    )
    """What the handler returned; left out if no result is stored."""

    @property
    def payload(self) -> Json:
        """The payload, decoded."""
        return decode_payload(self.payload_json)

    @property
    def result(self) -> Json:
        """The handler's result, if it is stored."""
        stored = self.result_json
        return decode_payload(stored) if isinstance(stored, msgspec.Raw) else None

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Job:
        """From a row of any statement that returns whole jobs."""
        return JobRow(*row).job()

    def __hash__(self) -> int:
        return hash((self.id, self.fence))

    def __repr__(self) -> str:
        # Without the payload: it may be large or confidential.
        return (
            f"Job(id={self.id!r}, kind={self.kind!r}, queue={self.queue!r}, state={self.state!r},"
            f" attempt={self.attempt}, fence={self.fence})"
        )


_RUNNING: Final = int(State.RUNNING)


class JobRow(msgspec.Struct, frozen=True, gc=False):
    """A row of any statement that returns whole jobs: times are microseconds, values JSON text.

    A worker takes rows. Most handlers never need the complete `Job`.
    """

    id: str
    tenant: str
    queue: str
    kind: str
    priority: int
    run_at: int
    attempt: int
    max_attempts: int
    fence: int
    payload_json: str
    unique_key: str | None
    generation: int
    created_at: int
    expires_at: int | None
    error: str | None
    options: str | None
    """None if the job has no options of its own, such as timeout, retention, store_result."""
    group_key: str | None
    defers: int
    taken_at: int | None
    """The last column of a take; see `TakeOrder.taken`."""
    lease_until: int | None
    worker: str | None
    state: int = _RUNNING
    ended_at: int | None = None
    result_json: str | None = None
    reason: str | None = None
    now: int = 0
    """When it was read."""
    awaiting: int | None = None
    pushed: str | None = None

    @property
    def size(self) -> int:
        """The bytes of its values that may be long."""
        values = (self.payload_json, self.result_json, self.options, self.error, self.pushed)
        return sum(len(value.encode()) for value in values if value is not None)

    @property
    def _state(self) -> JobState:
        awaits = self.awaiting == self.fence
        attempt, run_at = self.attempt, self.run_at
        return state_of(self.state, attempt=attempt, run_at=run_at, now=self.now, awaits=awaits)

    def job(self) -> Job:
        """The complete job."""
        options = read_options(self.options)
        result, expires_at, is_running = self.result_json, self.expires_at, self.state == _RUNNING
        exchange = None if result is None else _finishing_push(result, self.fence)
        created_at = _shared_moment(self.created_at)
        # In the order of the fields: with names it takes three times as long.
        return Job(
            self.id,
            self.tenant,
            self.kind,
            self.queue,
            "running" if is_running and self.awaiting is None else self._state,
            self.priority,
            self.attempt,
            self.max_attempts,
            self.fence,
            self.generation,
            self.defers,
            self.worker,
            self.unique_key,
            options.published,
            self.group_key,
            options.tags,
            options.metadata or {},
            options.trace,
            None if options.timeout is None else Duration(microseconds=options.timeout),
            options.backoff,
            None if options.keep is None else _retention(options.keep),
            options.result,
            created_at if self.run_at == self.created_at else from_micros(self.run_at),
            created_at,
            None if self.taken_at is None else _shared_moment(self.taken_at),
            _shared_moment(self.lease_until)
            if is_running and self.lease_until is not None
            else None,
            None if self.ended_at is None else from_micros(self.ended_at),
            None if expires_at is None else from_micros(expires_at),
            None if options.tick is None else from_micros(options.tick),
            self.reason,
            None if self.error is None else decode_payload(self.error),
            exchange or (None if self.pushed is None else _exchange(self.pushed)),
            msgspec.Raw(self.payload_json),
            msgspec.UNSET if result is None or exchange else msgspec.Raw(result),
        )


def _finishing_push(result: str, fence: int) -> Mapping[str, Any] | None:
    """The exchange that finished a pushed job: it is stored in the place of a handler's result."""
    if not result.startswith(_PUSHED):
        return None
    members = decode_payload(result)
    exchange = members["pushed"]
    is_ours = len(members) == 1 and is_object(exchange) and exchange.get("fence") == fence
    return exchange if is_ours else None


_PUSHED: Final = '{"pushed":'


def _exchange(text: str) -> Mapping[str, Any] | None:
    """The response of an endpoint; None for the text of a caller that pushes without Onefold."""
    try:
        exchange = decode_payload(text)
    except InvalidInput:
        return None
    return exchange if is_object(exchange) else None


def _retention(keep: Mapping[str, int]) -> Retention:
    return Retention(**{outcome: micros * MICROSECOND for outcome, micros in keep.items()})


_STATES: Final[Mapping[int, JobState]] = {
    State.RUNNING: "running",
    State.COMPLETED: "completed",
    State.DEAD: "dead",
    State.CANCELLED: "cancelled",
}


def state_of(
    stored: int, *, attempt: int, run_at: int, now: int, awaits: bool | None = False
) -> JobState:
    """The state of a job, from its stored columns.

    `awaits`: its delivery was pushed in ack mode and has no ack yet.
    """
    if stored == State.QUEUED:
        if attempt:
            return "retrying"
        return "scheduled" if run_at > now else "ready"
    return "awaiting" if awaits and stored == State.RUNNING else _STATES[stored]


_shared_moment: Final = lru_cache(maxsize=64)(from_micros)  # of all jobs of a take, or of a batch


class JobPage(msgspec.Struct, frozen=True):
    """Some jobs, and the cursor that continues after them."""

    jobs: tuple[Job, ...] = msgspec.field(name="items")
    """The jobs of this page."""
    next: str | None = None
    """Pass it as `after=` for the next page; None on the last."""
    looked_to: Moment | None = msgspec.field(name="lookedTo", default=None)
    """When the last job was enqueued that was looked at, if the page has fewer jobs than wanted and
    there may be more: one call looks at 10,000 jobs."""

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)
