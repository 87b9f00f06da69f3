"""The subject of the contract suite: Onefold, called in one particular way.

A case calls `subject.enqueue(…)` and `subject.deliveries.finish(…)` as it would call `Onefold`, and
type checkers see the signatures of `Onefold`. The subclasses in `onefold_contract.subjects` decide
how a call is made.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from copy import copy
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, cast

from onefold import Onefold
from onefold.testing import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self, Unpack

    from onefold import Onefold as Calls
    from onefold.app.onefold import Tenant
    from onefold.jobs.enqueue_options import CallOptions
    from onefold.model.job import Enqueued, Job, NewJob
    from onefold.model.queue import Queue
    from onefold.operations.queues import TakenUnderControl
    from onefold.runtime import Transact
else:
    Calls = object

LEASE: Final = timedelta(seconds=60)


class Subject(ABC, Calls):
    """One way of calling Onefold. Calls have the names that they have in `Onefold`."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = "onefold",
        shards: int | None = None,
        prepared_statements: bool | None = None,
    ) -> None:
        """Nothing is connected yet; `open` migrates."""
        self.clock: Clock = Clock()
        self.onefold: Onefold = Onefold(
            url,
            schema=schema,
            shards=shards,
            prepared_statements=prepared_statements,
            clock=lambda: self.clock.now,
        )
        self.url = url
        self.schema = schema
        self.shards: int = shards or 1
        """The number of shards of the database, once it is open."""
        self.connections: list[Any] = []
        """The connections of a caller, for calls that join the caller's transaction."""
        self.commits_errors = False
        self.tenant_name = ""
        self._tenants = {""}

    # --- how a call is made -----------------------------------------------------------------------

    if not TYPE_CHECKING:  # Or a misspelled call would have the type Any.

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return self.attribute(name)

    def attribute(self, path: str) -> Any:
        """A call of Onefold, or a noun that has calls, by its path: `enqueue`, `keys.find`."""
        found = attrgetter(path)(self.target(path))
        return partial(self.call, path) if inspect.ismethod(found) else Noun(self, path)

    def target(self, path: str) -> Tenant:
        """The object that has a call: the tenant, or Onefold for what tenants share."""
        if self.tenant_name:
            tenant = self.onefold.tenant(self.tenant_name)
            if hasattr(tenant, path.partition(".")[0]):
                return tenant
        return self.onefold

    def call(self, path: str, *args: Any, **options: Any) -> Any:
        """Make a call of Onefold."""
        return self.make(self.target(path), path, *args, **options)

    @abstractmethod
    def make(self, target: object, path: str, *args: Any, **options: Any) -> Any:
        """Call a method of `target` on Onefold's own connections."""

    # --- the life of a subject --------------------------------------------------------------------

    def open(self) -> None:
        """Create the tables if they do not exist, and read the number of shards."""
        self.make(self.onefold, "migrate")
        self.shards = self.make(self._database, "identity").shards

    def reset(self) -> None:
        """Delete what the last test stored, and start a new clock."""
        self.clock = Clock()
        for tenant in self._tenants:
            self.make(self.onefold, "keys.erase", tenant=tenant)
        self._tenants = {""}

    def close(self) -> None:
        """Close what was opened."""
        self.make(self.onefold, "close")

    def tenant(self, name: str) -> Self:
        """The same subject for one tenant."""
        other = copy(self)
        other.tenant_name = name
        self._tenants.add(name)
        return other

    def committing_errors(self) -> Self:
        """The same subject, whose caller catches an error and commits."""
        other = copy(self)
        other.commits_errors = True
        return other

    @property
    def _database(self) -> Any:
        return self.onefold.context.database  # pyright: ignore[reportPrivateUsage]

    # --- short forms for cases --------------------------------------------------------------------

    def existing_job(self, job_id: str) -> Job:
        """`get`, for a job that must exist."""
        job = self.get(job_id)
        assert job is not None, f"there is no job {job_id}"
        return job

    def existing_queue(self, name: str) -> Queue:
        """One of `queues`, which must exist."""
        return next(queue for queue in self.queues.find() if queue.full_name == name)

    def take(
        self,
        queues: Sequence[str] | Mapping[str, int] = ("default",),
        *,
        limit: int = 1,
        worker: str = "worker",
        lease: timedelta = LEASE,
    ) -> list[Job]:
        """Take jobs, with a worker and a lease that most cases do not care about."""
        return self.deliveries.take(queues, limit=limit, worker=worker, lease=lease)

    def take_one(self, queue: str = "default", *, lease: timedelta = LEASE) -> Job:
        """Take one job, which must be due."""
        taken = self.take([queue], lease=lease)
        assert len(taken) == 1, f"{len(taken)} jobs were due"
        return taken[0]

    def take_limited(
        self,
        queue: str,
        *,
        limit: int = 1,
        worker: str = "worker",
        lease: timedelta = LEASE,
        unknown: Sequence[str] = (),
    ) -> TakenUnderControl:
        """Take jobs from a queue with limits."""
        return self.deliveries.take_limited(
            queue, limit=limit, worker=worker, lease=lease, unknown=unknown
        )

    def enqueue_resent(
        self, new_jobs: Sequence[NewJob], **options: Unpack[CallOptions]
    ) -> tuple[list[Enqueued], list[Enqueued]]:
        """What a retry does after a commit whose answer was lost: the same ids once more."""
        calls = self.target("enqueue")
        procedure: Any = inspect.unwrap(type(calls).enqueue_many)
        step = cast("Transact[Any]", next(procedure(calls, new_jobs, **options)))
        first: list[Enqueued] = self.make(self._database, "transact", step.build)
        again: list[Enqueued] = self.make(self._database, "transact", step.build)
        return first, again


class Noun:
    """A noun of Onefold, such as `subject.deliveries`. The subject makes its calls."""

    def __init__(self, subject: Subject, path: str) -> None:
        self._subject = subject
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return self._subject.attribute(f"{self._path}.{name}")


def method(target: object, path: str, *, prefix: str = "") -> Callable[..., Any]:
    """The method of `target` at a path; with the prefix "a", its twin that is awaited."""
    noun, _, name = path.rpartition(".")
    owner = attrgetter(noun)(target) if noun else target
    return cast("Callable[..., Any]", getattr(owner, prefix + name))
