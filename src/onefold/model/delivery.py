"""A delivery: one lease of one job to one worker, named by the job's id and its fence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, TypeGuard

import msgspec

from onefold.errors import InvalidInput, LeaseLost
from onefold.model import checks
from onefold.model.claim import encode_result
from onefold.model.failure import described, printable, shown
from onefold.model.ids import parse_id
from onefold.model.job import Job, JobRow, JobState, Json
from onefold.model.json_text import decode_payload, encode_payload
from onefold.model.places import Places
from onefold.model.timestamps import Duration, Iso, span

EndingStatus: TypeAlias = Literal["accepted", "already", "lost"]

TAKE_LIMIT: Final = 10_000
FENCES: Final = range(-(2**63), 2**63)
"""Numbers of 64 bits, which a database can compare."""
EXCHANGE: Final = ("status", "duration", "excerpt")
"""The stored fields of the response to a push."""
NO_FAILURE: Final = '{"type":null,"message":null}'
"""Of a delivery that was deferred or cancelled: it did not fail."""


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """Identifies a delivery. A taken `Job` can be used instead."""

    id: str
    fence: int


class Ended(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The result of ending a delivery."""

    id: str
    """The id of the job."""
    fence: int
    """The number of the delivery that has ended."""
    status: EndingStatus
    """`accepted`: written now. `already`: written by this delivery before. `lost`: not written."""
    state: JobState | None
    """The job's state now; None if it was removed."""
    retry_in: Duration | None = None
    """How long the job waits until its next run, if this call has queued it."""

    @property
    def has_ended(self) -> bool:
        """True if the job is completed, dead, cancelled or deleted."""
        return self.state in {None, "completed", "dead", "cancelled"}

    def check(self) -> None:
        """Raise `LeaseLost` if the delivery was lost."""
        if self.status == "lost":
            raise LeaseLost(f"job {self.id}", fence=self.fence)


class Heartbeat(msgspec.Struct, frozen=True, gc=False):
    """The result of a heartbeat."""

    id: str
    fence: int
    lease_until: datetime | None
    """None if the delivery is lost: stop working on it."""

    @property
    def lost(self) -> bool:
        """True if another delivery has the job, or it has ended."""
        return self.lease_until is None


class PushEnvelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of a push: one delivery of a job."""

    id: str
    """The id of the job, the same for every delivery of it."""
    queue: str
    """The queue of the job."""
    payload_json: msgspec.Raw = msgspec.field(name="payload")
    """As it was stored: numbers that Python cannot represent stay as they are."""
    attempt: int
    """From 1."""
    max_attempts: int
    """How many attempts the job has in all."""
    defers: int = msgspec.field(name="deferCount")
    """How often it was deferred since it was enqueued or replayed."""
    created_at: Iso
    """When the job was published."""
    kind: str
    """The kind of the job; by default the name of its queue."""
    fence: int
    """The number of this delivery. It grows with every delivery of the job."""
    generation: int
    """Grows with a fresh replay: the job runs again although its id is known."""

    @property
    def payload(self) -> Json:
        """The payload, decoded."""
        return decode_payload(self.payload_json)


TAKEN_AT: Final = JobRow.__struct_fields__.index("taken_at")
"""The last column of a take."""


class TakeOrder(msgspec.Struct, frozen=True):
    """What a worker can take."""

    queues: Mapping[str, int]
    """In the order they are served, each with its maximum."""
    limit: int
    worker: str
    lease: int
    unknown: tuple[str, ...] = ()
    """Kinds that the worker has no handler for: another worker takes them."""
    tries: list[str] = msgspec.field(default_factory=list[str])
    """The ids of the takes that were sent for it, in order: only the last can have a response."""
    places: Places = msgspec.field(default_factory=Places)
    """Where the take begins."""

    @property
    def take_id(self) -> str | None:
        """The id of the current take."""
        return self.tries[-1] if self.tries else None

    def taken(self, rows: Sequence[Sequence[Any]]) -> list[JobRow]:
        """The jobs that one statement has leased: its rows are without what this order says."""
        if not rows:
            return []
        of_all: tuple[Any, ...] = (rows[0][TAKEN_AT] + self.lease, self.worker)
        return [JobRow(*row, *of_all) for row in rows]

    def without(self, taken: Sequence[JobRow]) -> TakeOrder | None:
        """The rest, for the next shard; None if nothing is left."""
        if not taken:
            return self
        got = Counter(job.queue for job in taken)
        queues = {queue: most - got[queue] for queue, most in self.queues.items()}
        left = {queue: most for queue, most in queues.items() if most}
        limit = self.limit - len(taken)
        return msgspec.structs.replace(self, queues=left, limit=limit) if left and limit else None


def take_order(
    queues: Sequence[str] | Mapping[str, int],
    *,
    limit: int,
    worker: str,
    lease: timedelta,
    unknown: Sequence[str] = (),
) -> TakeOrder:
    """Check the options of a take."""
    if not _is_limit(limit):
        raise InvalidInput("limit", f"must be a whole number from 1 to {TAKE_LIMIT}, got {limit!r}")
    return TakeOrder(
        _queues(queues, limit),
        limit,
        checks.text(worker, "worker"),
        span(lease, "lease", least=timedelta(microseconds=1)),
        tuple(unknown),
    )


def _queues(queues: Sequence[str] | Mapping[str, int], limit: int) -> dict[str, int]:
    wanted: dict[str, int] = {}
    listed = queues if isinstance(queues, Mapping) else checks.listed(queues, "queues", "names")
    for queue in listed:
        checks.queue(queue, "queues")
        most = queues[queue] if isinstance(queues, Mapping) else limit
        if not _is_limit(most):
            raise InvalidInput(
                "queues",
                f"must give {queue!r} a whole number from 1 to {TAKE_LIMIT}, got {most!r}",
            )
        wanted[queue] = most
    if not wanted:
        raise InvalidInput("queues", "must name at least one queue")
    return wanted


def _is_limit(value: object) -> bool:
    return type(value) is int and 1 <= value <= TAKE_LIMIT


def deliveries(jobs: Sequence[Job | Delivery]) -> list[Delivery]:
    """The deliveries of taken jobs; invalid ones are rejected before any query."""
    return [
        # A job comes from the database.
        Delivery(job.id, job.fence) if isinstance(job, Job) else _checked(job, item)
        for item, job in enumerate(checks.listed(jobs, "jobs", "taken jobs"))
    ]


def _checked(delivery: object, item: int) -> Delivery:
    if not isinstance(delivery, Delivery):
        raise InvalidInput("jobs", f"must hold jobs or deliveries, got {delivery!r}", item=item)
    if type(delivery.fence) is not int or delivery.fence not in FENCES:
        reason = f"must be a whole number of 64 bits, got {delivery.fence!r}"
        raise InvalidInput("fence", reason, item=item)
    try:
        return Delivery(parse_id(delivery.id), delivery.fence)
    except InvalidInput as error:
        raise error.at(item) from None


def results_by_id(results: Mapping[str, Json] | None, named: Sequence[Delivery]) -> dict[str, str]:
    """The stored form of results by job id; each id must be among the deliveries."""
    if results is None:
        return {}
    if not isinstance(results, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput("results", f"must be a mapping from ids to results, got {results!r}")
    ids = {delivery.id for delivery in named}
    stored: dict[str, str] = {}
    for job_id, result in results.items():
        parsed = parse_id(job_id, "results")
        if parsed not in ids:
            raise InvalidInput("results", f"names {parsed}, which is none of the given jobs")
        stored[parsed] = encode_result(result)
    return stored


def with_exchange(error: str | None, exchange: str | None) -> str | None:
    """A stored failure with the endpoint's response to its push; both are JSON."""
    if exchange is None:
        return error
    try:
        answered = msgspec.json.decode(exchange, type=dict[str, Any])
        told = msgspec.json.decode(error or NO_FAILURE, type=dict[str, Any])
    except msgspec.MsgspecError:
        return error  # A custom failure of a caller that pushes without our courier.
    told |= {name: answered[name] for name in EXCHANGE if name in answered}
    return msgspec.json.encode(told).decode()


def encode_error(error: object) -> str | None:
    """The stored form of a failure: an exception, a sentence, or a mapping.

    An exception is stored with its traceback and its causes, bounded, and without the values of
    any variables.
    """
    if error is None:
        return None
    details: Mapping[Any, Any]
    if isinstance(error, BaseException):
        details = described(error)
    elif _is_mapping(error):
        details = error
    else:
        details = {"type": None, "message": shown(error)}
    try:
        return encode_payload(_printable(details))
    except InvalidInput as refusal:
        raise InvalidInput("error", refusal.reason) from refusal


def _printable(value: Any) -> Any:
    """Make any failure storable and searchable, whatever its text contains."""
    if isinstance(value, str):
        return printable(value)
    if _is_mapping(value):
        return {_printable(str(name)): _printable(member) for name, member in value.items()}
    if _is_sequence(value):
        return [_printable(element) for element in value]
    return value


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)
