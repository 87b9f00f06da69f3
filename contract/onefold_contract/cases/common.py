"""Helpers that several modules of cases use."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, Final

from onefold.errors import InvalidInput
from onefold.model.delivery import Ended
from onefold.model.ids import shard_of
from onefold.model.job import Job
from onefold.model.retry import Fixed
from onefold_contract.subject import Subject

MICROSECOND: Final = timedelta(microseconds=1)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)

AT_ONCE: Final = Fixed(timedelta(0))
"""A backoff that a test need not wait for."""


def refused_field(call: Callable[..., object], *args: Any, **options: Any) -> str | None:
    """The field that the error of a call names; None if the call is accepted."""
    try:
        call(*args, **options)
    except InvalidInput as error:
        return error.field
    return None


def kept(subject: Subject, unique_key: str) -> list[Job]:
    """The jobs with this key, oldest first."""
    return list(subject.find(unique_key=unique_key))


def stored(subject: Subject) -> int:
    """How many jobs there are."""
    return len(subject.find(limit=1000))


def foremost(subject: Subject, order: Sequence[str], taken: Sequence[Job]) -> list[str]:
    """The first of `order`, as many of each shard as were taken: with one shard, the first of all.

    A take may start at any shard: the order is strict within a shard only.
    """
    left = Counter(shard_of(job.id, subject.shards) for job in taken)
    found: list[str] = []
    for job_id in order:
        shard = shard_of(job_id, subject.shards)
        if left[shard]:
            left[shard] -= 1
            found.append(job_id)
    return found


def spread(subject: Subject, *, each: int = 2, **options: Any) -> list[Job]:
    """Enqueue jobs with one key each, until every shard has at least `each` of them."""
    found: list[Job] = []
    on_shard: Counter[int] = Counter()
    for number in count():
        answer = subject.enqueue("email", unique_key=f"spread {number}", **options)
        found.append(subject.existing_job(answer.id))
        on_shard[shard_of(found[-1].id, subject.shards)] += 1
        if all(on_shard[shard] >= each for shard in range(subject.shards)):
            break
    return found


def complete(subject: Subject, queue: str = "default") -> Job:
    """Take the one due job and finish it."""
    job = subject.take_one(queue)
    subject.deliveries.finish([job])
    return job


def bury(subject: Subject, queue: str = "default") -> Job:
    """Take the one due job and bury it."""
    job = subject.take_one(queue)
    subject.deliveries.bury([job], reason="broken")
    return job


def _cancel(subject: Subject) -> None:
    subject.cancel(subject.find(state="ready").jobs[0].id)


def _cancel_running(subject: Subject) -> None:
    subject.cancel(subject.take_one().id)


def _lapse(subject: Subject) -> None:
    subject.take_one(lease=SECOND)
    subject.clock.advance(SECOND)
    subject.deliveries.rescue()


MOMENTS: Final[dict[str, Callable[[Subject], object]]] = {
    "queued": lambda subject: None,
    "running": lambda subject: subject.take_one(),
    "retrying": lambda subject: subject.deliveries.retry([subject.take_one()]),
    "deferred": lambda subject: subject.deliveries.defer([subject.take_one()], after=MINUTE),
    "handed back": lambda subject: subject.deliveries.hand_back([subject.take_one()]),
    "rescued": _lapse,
    "completed": complete,
    "dead": bury,
    "cancelled": _cancel,
    "cancelled while running": _cancel_running,
}
"""Moments in the life of the one job that is there, and how it gets to them."""


def _lapse_now(subject: Subject, job: Job) -> None:
    until = subject.existing_job(job.id).lease_until
    assert until is not None
    subject.clock.set(max(until, subject.clock.now))
    subject.deliveries.rescue()


ENDINGS: Final[dict[str, Callable[[Subject, list[Any]], list[Ended]]]] = {
    "finish": lambda subject, jobs: subject.deliveries.finish(jobs),
    "retry": lambda subject, jobs: subject.deliveries.retry(jobs),
    "defer": lambda subject, jobs: subject.deliveries.defer(jobs, after=SECOND),
    "bury": lambda subject, jobs: subject.deliveries.bury(jobs, reason="broken"),
    "hand back": lambda subject, jobs: subject.deliveries.hand_back(jobs),
}
"""How a worker ends deliveries, and what it is answered."""

WORDS: Final[dict[str, Callable[[Subject, Job], object]]] = {
    "finish": lambda subject, job: subject.deliveries.finish([job]),
    "retry": lambda subject, job: subject.deliveries.retry([job], after=HOUR),
    "bury": lambda subject, job: subject.deliveries.bury([job], reason="broken"),
    "defer": lambda subject, job: subject.deliveries.defer([job], after=HOUR),
    "hand back": lambda subject, job: subject.deliveries.hand_back([job]),
    "ack": lambda subject, job: subject.deliveries.acknowledge(job.id),
    "nack": lambda subject, job: subject.deliveries.nack(job.id),
    "nack for good": lambda subject, job: subject.deliveries.nack(job.id, retryable=False),
    "defer job": lambda subject, job: subject.deliveries.defer_job(job.id, after=HOUR),
    "lapse": _lapse_now,
    "cancel": lambda subject, job: subject.cancel(job.id),
}
"""How a delivery ends, by the word for it."""
