"""What the contract's modules share."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from onefold.model.retry import Fixed

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.model.job import Job
    from onefold.testing.subject import Subject

MICROSECOND: Final = timedelta(microseconds=1)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)

AT_ONCE: Final = Fixed(timedelta(0))
"""A backoff that a test need not wait for."""


def kept(subject: Subject, unique_key: str) -> list[Job]:
    """The jobs with this key, oldest first."""
    return list(subject.find(unique_key=unique_key))


def stored(subject: Subject) -> int:
    """How many jobs there are."""
    return len(subject.find(limit=1000))


def complete(subject: Subject, queue: str = "default") -> Job:
    """Take the one due job and finish it."""
    job = subject.take_one(queue)
    subject.engine.finish([job])
    return job


def bury(subject: Subject, queue: str = "default") -> Job:
    """Take the one due job and bury it."""
    job = subject.take_one(queue)
    subject.engine.bury([job])
    return job


def _cancel(subject: Subject) -> None:
    subject.cancel(subject.find(status="queued").jobs[0].id)


def _cancel_running(subject: Subject) -> None:
    subject.cancel(subject.take_one().id)


def _lapse(subject: Subject) -> None:
    subject.take_one(lease=SECOND)
    subject.clock.advance(SECOND)
    subject.engine.rescue()


MOMENTS: Final[dict[str, Callable[[Subject], object]]] = {
    "queued": lambda subject: None,
    "running": lambda subject: subject.take_one(),
    "retrying": lambda subject: subject.engine.retry([subject.take_one()]),
    "deferred": lambda subject: subject.engine.defer([subject.take_one()], after=MINUTE),
    "handed back": lambda subject: subject.engine.hand_back([subject.take_one()]),
    "rescued": _lapse,
    "completed": complete,
    "dead": bury,
    "cancelled": _cancel,
    "cancelled while running": _cancel_running,
}
"""Moments in the life of the one job that is there, and how it gets to them."""
