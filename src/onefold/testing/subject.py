"""The subject of the contract suite: Onefold's calls under their own names.

How they are carried out is the business of `onefold.testing.subjects`.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from onefold.app import Onefold
from onefold.calls.jobs import EMPTY
from onefold.testing.clock import Clock
from onefold.testing.subject_pushes import PushEngineCalls, PushSubject
from onefold.testing.subject_queues import QueueEngineCalls, QueueSubject
from onefold.testing.subject_schedules import ScheduleSubject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self, Unpack

    from onefold.app import Tenant
    from onefold.calls.jobs import CallOptions, EnqueueOptions, FindOptions
    from onefold.calls.procedure import Transaction
    from onefold.model.claim import Answer, Claim, Takeover
    from onefold.model.delivery import Beat, Delivery, Ended
    from onefold.model.history import Attempt
    from onefold.model.job import Duplicates, Enqueued, EnqueuedMany, Job, Json, NewJob, Page
    from onefold.model.schedule import Ticked
    from onefold.operations.endings import Ending, Rescued
    from onefold.operations.maintenance import Erased, Pruned

LEASE: Final = timedelta(seconds=60)


class Subject(ScheduleSubject, QueueSubject, PushSubject):
    """One way of making Onefold's calls."""

    def __init__(self, url: str, *, schema: str = "onefold", shards: int | None = None) -> None:
        """Nothing is connected yet; `open` migrates."""
        self.clock: Clock = Clock()
        # Through self, so that a reset replaces the clock of an Onefold that is in use.
        self.onefold: Onefold = Onefold(
            url, schema=schema, shards=shards, clock=lambda: self._clocks[0].now
        )
        self._clocks = [self.clock]
        self.url = url
        self.schema = schema
        self.shards: int = shards or 1
        """What the database has, once it is open: the order of takes is strict within a shard."""
        self._tenant = ""
        self._tenants = {""}
        self._commits_errors = False

    @property
    def engine(self) -> EngineCalls:
        """The engine's delivery calls, in this subject's colour."""
        return EngineCalls(self)

    def tenant(self, name: str) -> Self:
        """The same subject for one owner of keys."""
        other = copy(self)
        other._tenant = name
        self._tenants.add(name)
        return other

    def committing_errors(self) -> Self:
        """The same subject, whose caller catches an error and commits what was done until then."""
        other = copy(self)
        other._commits_errors = True
        return other

    def open(self) -> None:
        """Make the tables, unless they are there; a subject that was not told adopts its shards."""
        self.carry_out(self.onefold, "migrate")
        database = self.onefold._conductor.database  # pyright: ignore[reportPrivateUsage]
        self.shards = self.carry_out(database, "identity").shards

    def reset(self) -> None:
        """Forget what the last test stored, and start a new clock."""
        self.clock = self._clocks[0] = Clock()
        for tenant in self._tenants:
            self.carry_out(self.onefold, "erase", tenant=tenant)
        self._tenants = {""}

    def close(self) -> None:
        """Close what was opened."""
        self.carry_out(self.onefold, "close")

    def _calls(self) -> Tenant:
        return self.onefold.tenant(self._tenant) if self._tenant else self.onefold

    @abstractmethod
    def carry_out(self, target: object, name: str, *args: Any, **options: Any) -> Any:
        """Call a method of Onefold itself: on its own pool."""

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        """Call a method in this subject's way."""
        return self.carry_out(self._calls(), name, *args, **options)

    # --- the calls, under their own names ---------------------------------------------------------

    def enqueue(
        self, kind: str, payload: Json = EMPTY, **options: Unpack[EnqueueOptions]
    ) -> Enqueued:
        """`Onefold.enqueue`."""
        answer: Enqueued = self._call("enqueue", kind, payload, **options)
        return answer

    def enqueue_many(
        self, new_jobs: Sequence[NewJob], **options: Unpack[CallOptions]
    ) -> EnqueuedMany:
        """`Onefold.enqueue_many`."""
        answers: EnqueuedMany = self._call("enqueue_many", new_jobs, **options)
        return answers

    def enqueue_resent(
        self, new_jobs: Sequence[NewJob], **options: Unpack[CallOptions]
    ) -> tuple[list[Enqueued], list[Enqueued]]:
        """What our own retry does after a commit whose answer was lost: the same ids once more."""
        step = cast("Transaction[Any]", next(self._calls()._enqueue(new_jobs, options)))  # pyright: ignore[reportPrivateUsage]
        database = self.onefold._conductor.database  # pyright: ignore[reportPrivateUsage]
        first: list[Enqueued] = self.carry_out(database, "transact", step.build)
        again: list[Enqueued] = self.carry_out(database, "transact", step.build)
        return first, again

    def get(self, job_id: str) -> Job | None:
        """`Onefold.get`."""
        job: Job | None = self._call("get", job_id)
        return job

    def job(self, job_id: str) -> Job:
        """`get`, for a job that must be there."""
        job = self.get(job_id)
        assert job is not None, f"there is no job {job_id}"
        return job

    def find(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = False,
        **filters: Unpack[FindOptions],
    ) -> Page:
        """`Onefold.find`."""
        page: Page = self._call(
            "find", limit=limit, after=after, newest_first=newest_first, **filters
        )
        return page

    def cancel(self, job_id: str, *, reason: str | None = None) -> bool:
        """`Onefold.cancel`."""
        done: bool = self._call("cancel", job_id, reason=reason)
        return done

    def replay(self, job_id: str, *, fresh: bool = False) -> Enqueued:
        """`Onefold.replay`."""
        answer: Enqueued = self._call("replay", job_id, fresh=fresh)
        return answer

    def replay_many(
        self,
        *,
        fresh: bool = False,
        limit: int | None = None,
        after: str | None = None,
        **filters: Unpack[FindOptions],
    ) -> EnqueuedMany:
        """`Onefold.replay_many`."""
        answers: EnqueuedMany = self._call(
            "replay_many", fresh=fresh, limit=limit, after=after, **filters
        )
        return answers

    def delete(self, job_id: str) -> bool:
        """`Onefold.delete`."""
        done: bool = self._call("delete", job_id)
        return done

    def delete_many(self, *, limit: int | None = None, **filters: Unpack[FindOptions]) -> int:
        """`Onefold.delete_many`."""
        deleted: int = self._call("delete_many", limit=limit, **filters)
        return deleted

    def attempts(self, job_id: str) -> list[Attempt]:
        """`Onefold.attempts`."""
        found: list[Attempt] = self._call("attempts", job_id)
        return found

    def duplicates(self, job_id: str) -> Duplicates:
        """`Onefold.duplicates`."""
        found: Duplicates = self._call("duplicates", job_id)
        return found

    def claim(
        self,
        scope: str,
        key: str,
        *,
        surface: str = "once",
        fingerprint: str | None = None,
        retention: timedelta | None = None,
        takeover: Takeover | None = None,
        lease: timedelta | None = None,
    ) -> Answer:
        """`Onefold.claim`."""
        answer: Answer = self._call(
            "claim",
            scope,
            key,
            surface=surface,
            fingerprint=fingerprint,
            retention=retention,
            takeover=takeover,
            lease=lease,
        )
        return answer

    def settle(self, claim: Claim, result: Json = None) -> None:
        """`Onefold.settle`."""
        self._call("settle", claim, result)

    def release(self, claim: Claim) -> bool:
        """`Onefold.release`."""
        done: bool = self._call("release", claim)
        return done

    def erase(self, *, key: str | None = None, tenant: str | None = None) -> Erased:
        """`Onefold.erase`, which is never within a caller's transaction."""
        erased: Erased = self.carry_out(self._calls(), "erase", key=key, tenant=tenant)
        return erased

    def take_one(self, queue: str = "default", *, lease: timedelta = LEASE) -> Job:
        """Take the one job that must be due."""
        taken = self.engine.take([queue], lease=lease)
        assert len(taken) == 1, f"{len(taken)} jobs were due"
        return taken[0]


class EngineCalls(QueueEngineCalls, PushEngineCalls):
    """`Onefold.engine`, in a subject's colour. The engine's transactions are always its own."""

    def __init__(self, subject: Subject) -> None:
        """Made by `Subject.engine`."""
        self._subject = subject

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        return self._subject.carry_out(self._subject.onefold.engine, name, *args, **options)

    def take(
        self,
        queues: Sequence[str] | Mapping[str, int] = ("default",),
        *,
        limit: int = 1,
        worker: str = "worker",
        lease: timedelta = LEASE,
    ) -> list[Job]:
        """`Engine.take`."""
        jobs: list[Job] = self._call("take", queues, limit=limit, worker=worker, lease=lease)
        return jobs

    def finish(
        self, jobs: Sequence[Job | Delivery], *, results: Mapping[str, Json] | None = None
    ) -> list[Ended]:
        """`Engine.finish`."""
        ended: list[Ended] = self._call("finish", jobs, results=results)
        return ended

    def finish_and_take(
        self,
        jobs: Sequence[Job | Delivery],
        queues: Sequence[str] | Mapping[str, int] = ("default",),
        *,
        limit: int = 1,
        worker: str = "worker",
        lease: timedelta = LEASE,
    ) -> tuple[list[Ended], list[Job]]:
        """`Engine.finish_and_take`."""
        both: tuple[list[Ended], list[Job]] = self._call(
            "finish_and_take", jobs, queues, limit=limit, worker=worker, lease=lease
        )
        return both

    def retry(
        self,
        jobs: Sequence[Job | Delivery],
        *,
        after: timedelta | None = None,
        error: object = None,
    ) -> list[Ended]:
        """`Engine.retry`."""
        ended: list[Ended] = self._call("retry", jobs, after=after, error=error)
        return ended

    def defer(self, jobs: Sequence[Job | Delivery], *, after: timedelta) -> list[Ended]:
        """`Engine.defer`."""
        ended: list[Ended] = self._call("defer", jobs, after=after)
        return ended

    def bury(
        self, jobs: Sequence[Job | Delivery], *, reason: str = "broken", error: object = None
    ) -> list[Ended]:
        """`Engine.bury`."""
        ended: list[Ended] = self._call("bury", jobs, reason=reason, error=error)
        return ended

    def hand_back(self, jobs: Sequence[Job | Delivery]) -> list[Ended]:
        """`Engine.hand_back`."""
        ended: list[Ended] = self._call("hand_back", jobs)
        return ended

    def end(self, endings: Sequence[Ending]) -> list[Ended]:
        """`Engine.end`."""
        ended: list[Ended] = self._call("end", endings)
        return ended

    def heartbeat(self, jobs: Sequence[Job | Delivery], *, lease: timedelta = LEASE) -> list[Beat]:
        """`Engine.heartbeat`."""
        beats: list[Beat] = self._call("heartbeat", jobs, lease=lease)
        return beats

    def rescue(self, *, limit: int | None = None) -> Rescued:
        """`Engine.rescue`."""
        rescued: Rescued = self._call("rescue", limit=limit)
        return rescued

    def prune(self) -> Pruned:
        """`Engine.prune`."""
        pruned: Pruned = self._call("prune")
        return pruned

    def sweep(self) -> int:
        """`Engine.sweep`."""
        swept: int = self._call("sweep")
        return swept

    def tick(self) -> Ticked:
        """`Engine.tick`."""
        ticked: Ticked = self._call("tick")
        return ticked

    def fold(self) -> int:
        """`Engine.fold`."""
        folded: int = self._call("fold")
        return folded
