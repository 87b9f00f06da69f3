"""Books: where the steps of something are written. A job has one; so has a request with a key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from onefold.model.delivery import Delivery
from onefold.operations import steps

if TYPE_CHECKING:
    from onefold.model.job import Job
    from onefold.model.step import StepName, StepRow
    from onefold.operations.statement import Operation, Sql
    from onefold.operations.steps import StepWrite


class Book(ABC):
    """The steps of something that several attempts may work on, one after the other."""

    fence: int
    """Of this attempt: what has another is another's."""
    generation: int
    """Of the steps that count: those of others are left where they are."""
    is_new: bool
    """True where no earlier attempt can have left anything."""

    @abstractmethod
    def write(self, sql: Sql, wanted: StepWrite) -> Operation[StepRow]:
        """Write a step; `LeaseLost` where the whole is no longer this attempt's."""

    @abstractmethod
    def find(self, sql: Sql, *, key: str | None = None) -> Operation[list[StepRow]]:
        """All steps, or the one with this key."""

    @abstractmethod
    def third_party_key(self, name: StepName) -> str:
        """The key under which a third party knows a step: the same over every attempt."""


class JobBook(Book):
    """The steps of a job, for one delivery of it."""

    def __init__(self, job: Job) -> None:
        """Nothing is read yet."""
        self.fence: int = job.fence
        self.generation: int = job.generation
        # Nobody can have left anything before the first delivery.
        self.is_new: bool = job.fence <= 1
        self._job = job

    def write(self, sql: Sql, wanted: StepWrite) -> Operation[StepRow]:
        """Write a step; `LeaseLost` where the job is no longer this delivery's."""
        delivery = Delivery(self._job.id, self.fence)
        return (yield from steps.write(sql, delivery, self._job.tenant, wanted))

    def find(self, sql: Sql, *, key: str | None = None) -> Operation[list[StepRow]]:
        """All steps of the job, or the one with this key."""
        return (yield from steps.find(sql, self._job.id, self._job.tenant, key=key))

    def third_party_key(self, name: StepName) -> str:
        """The same over every attempt of the job, and new after a fresh replay."""
        generation = f".{self.generation}" if self.generation else ""
        return f"{self._job.id}{generation}:{name.label}"
