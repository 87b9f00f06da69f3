"""A delivery: one lease of one job to one worker, named by the job's id and its fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, TypeGuard

import msgspec

from onefold.errors import InvalidInput, LeaseLost
from onefold.model import names
from onefold.model.canonical import encode_payload
from onefold.model.identity import parse_id
from onefold.model.job import Job, StateWord
from onefold.model.moment import span

EndingStatus: TypeAlias = Literal["accepted", "already", "lost"]

ERROR_LENGTH: Final = 10_000


class Delivery(msgspec.Struct, frozen=True):
    """Which delivery is meant. A taken `Job` will do wherever one is asked for."""

    id: str
    fence: int


class Ended(msgspec.Struct, frozen=True):
    """What became of a word about a delivery."""

    id: str
    fence: int
    status: EndingStatus
    """`accepted`: written now. `already`: this delivery said so before. `lost`: nothing written."""
    state: StateWord | None
    """Of the job now; None where it is gone."""

    def check(self) -> None:
        """Raise `LeaseLost` unless this delivery's word counted."""
        if self.status == "lost":
            raise LeaseLost(f"job {self.id}", fence=self.fence)


class Beat(msgspec.Struct, frozen=True):
    """The answer to a heartbeat."""

    id: str
    fence: int
    lease_until: datetime | None
    """None where the delivery is lost: stop working on it."""

    @property
    def lost(self) -> bool:
        """True where somebody else has the job, or it has ended."""
        return self.lease_until is None


class TakeOrder(msgspec.Struct, frozen=True):
    """What a worker is ready for."""

    queues: Mapping[str, int]
    """In the order they are served, each with the most it may give."""
    limit: int
    worker: str
    lease: int


def take_order(
    queues: Sequence[str] | Mapping[str, int], *, limit: int, worker: str, lease: timedelta
) -> TakeOrder:
    """Check what a worker asks for."""
    if type(limit) is not int or limit < 1:
        raise InvalidInput("limit", f"must be a whole number from 1, got {limit!r}")
    if isinstance(queues, str):
        raise InvalidInput("queues", f"must be a list of names, got the string {queues!r}")
    wanted = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues, limit)
    if not wanted:
        raise InvalidInput("queues", "must name at least one queue")
    for queue, most in wanted.items():
        names.name(queue, "queues")
        if type(most) is not int or most < 1:
            raise InvalidInput("queues", f"must give {queue!r} a whole number from 1, got {most!r}")
    return TakeOrder(
        wanted,
        limit,
        names.text(worker, "worker"),
        span(lease, "lease", least=timedelta(microseconds=1)),
    )


def deliveries(items: Sequence[Job | Delivery]) -> list[Delivery]:
    """Name the deliveries of taken jobs; bad ids are refused before anything is asked."""
    named: list[Delivery] = []
    for item in items:
        if type(item.fence) is not int:
            raise InvalidInput("fence", f"must be a whole number, got {item.fence!r}")
        named.append(Delivery(parse_id(item.id), item.fence))
    return named


def encode_error(error: object) -> str | None:
    """The stored form of a failure: an exception, a sentence, or a mapping."""
    if error is None:
        return None
    details: Mapping[Any, Any]
    if isinstance(error, BaseException):
        kind = type(error)
        details = {"type": f"{kind.__module__}.{kind.__qualname__}", "message": str(error)}
    elif _is_mapping(error):
        details = error
    else:
        details = {"type": None, "message": str(error)}
    try:
        return encode_payload(_printable(details))
    except InvalidInput as refusal:
        raise InvalidInput("error", refusal.reason) from refusal


def _printable(value: Any) -> Any:
    """A failure must not fail to be stored, or to be looked for, because of what it says.

    What is not Unicode is shown as escapes, and so is NUL, which PostgreSQL's JSON cannot have.
    """
    if isinstance(value, str):
        clean = value.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
        return clean if len(clean) <= ERROR_LENGTH else clean[:ERROR_LENGTH] + "…"
    if _is_mapping(value):
        return {_printable(str(name)): _printable(member) for name, member in value.items()}
    if _is_sequence(value):
        return [_printable(element) for element in value]
    return value


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)
