"""Defaults of kinds and queues, for options that a job does not set.

A job wins over its kind, and a kind over its queue. The enqueue fills them in and stores them with
the job; only the timeout of a kind is left to the worker, which knows the kind, too.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.model.job import NewJob
from onefold.model.lifecycle import Retention
from onefold.model.limit import Limit
from onefold.model.new_job import prepare
from onefold.model.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence


class JobDefaults(msgspec.Struct, frozen=True):
    """The defaults of a kind or of a queue."""

    backoff: Backoff | None = None
    retention: Retention | None = None
    timeout: timedelta | None = None
    group_limit: Limit | None = None
    """Its key gives the group of a job that does not set one."""


NOTHING: Final = JobDefaults()


class Defaults:
    """The defaults of all kinds and queues."""

    def __init__(self) -> None:
        self._kinds: dict[str, JobDefaults] = {}
        self._queues: dict[str, JobDefaults] = {}
        self.active: bool = False
        """False without defaults."""

    def set_for_queue(self, queue: str, given: JobDefaults) -> None:
        """Set the defaults for jobs of this queue; they replace earlier ones."""
        _check(NewJob("any", queue=queue), given)
        self._queues[queue] = given
        self.active = True

    def set_for_kind(self, kind: str, given: JobDefaults) -> None:
        """Set the defaults for jobs of this kind; the declaration has checked them."""
        if given != NOTHING:
            self._kinds[kind] = given
            self.active = True
        else:
            self._kinds.pop(kind, None)

    def filled(self, new_jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """The same jobs, with the defaults of their kinds and queues filled in."""
        if not self.active:
            return new_jobs
        return [self._filled(new_job) for new_job in new_jobs]

    def _filled(self, new_job: Any) -> Any:
        # A value that is not a valid job is rejected later, with an error message.
        if not isinstance(new_job, NewJob):
            return new_job
        kind = _defaults_of(self._kinds, new_job.kind)
        queue = _defaults_of(self._queues, new_job.queue)
        if kind is NOTHING and queue is NOTHING:
            return new_job
        timeout = new_job.timeout
        if timeout is None and kind.timeout is None:
            timeout = queue.timeout
        return msgspec.structs.replace(
            new_job,
            backoff=new_job.backoff or kind.backoff or queue.backoff,
            retention=_first(new_job.retention, kind.retention, queue.retention),
            timeout=timeout,
            group_key=_group(new_job, queue.group_limit),
        )


def _group(new_job: NewJob, limit: Limit | None) -> str | None:
    if new_job.group_key is not None or limit is None:
        return new_job.group_key
    return limit.group_of(new_job.payload)


def _defaults_of(given: dict[str, JobDefaults], name: object) -> JobDefaults:
    return given.get(name, NOTHING) if isinstance(name, str) else NOTHING


def _first(*retentions: Any) -> Any:
    """For each outcome, the first value that is set."""
    given = [one for one in retentions if one is not None]
    if len(given) <= 1 or not all(isinstance(one, Retention) for one in given):
        return given[0] if given else None
    return Retention(
        **{
            outcome: next(
                (one for each in given if (one := getattr(each, outcome)) is not None), None
            )
            for outcome in Retention.__struct_fields__
        }
    )


def _check(new_job: NewJob, given: JobDefaults) -> None:
    """Check the defaults by the rules for a job; the error names the field."""
    prepare(
        msgspec.structs.replace(
            new_job, backoff=given.backoff, retention=given.retention, timeout=given.timeout
        ),
        "",
        now=0,
    )
