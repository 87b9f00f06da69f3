"""Kill, freeze and cut off the workers of an application while they run its jobs.

Nothing is simulated: the workers are processes of `onefold worker`, with a short lease. A worker
that is frozen for longer than its lease continues late, so its jobs are delivered twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from itertools import count
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onefold.errors import Busy, InvalidInput, UsageError
from onefold.jobs.job_function import Enqueuer
from onefold.testing.jobs import enqueued
from onefold.testing.snapshot import snapshots
from onefold.worker.settings import worker_settings
from onefold.worker.supervisor import MARGIN, USAGE_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from onefold.app.onefold import Onefold, Tenant
    from onefold.model.job import Job

STEP: Final = 0.02
"""Seconds between two looks at the workers and their jobs."""
STARTED: Final = 15.0
"""Seconds after which the faults begin, although no worker has run a job."""
SOONEST: Final = 0.001
LATEST: Final = 0.3
"""Seconds from the moment when a worker holds a job to a fault."""
GRACE: Final = 10.0
"""Seconds that the handlers have to end when the workers are stopped."""
HELD: Final = 500
"""Jobs that are read to find the workers that hold some."""
VANISHED: Final = frozenset({"poison", "lease expired"})
"""Why a job is buried whose workers vanished too often."""
SHOWN: Final = 10
"""Rows of the check that are read."""
ENDED: Final = frozenset({"completed", "dead", "cancelled"})
LEFT: Final = ("running", "awaiting", "ready", "retrying")
_CUT: Final = """
select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity
where application_name = %s and usename = current_user
"""


class Load(msgspec.Struct, frozen=True):
    """Jobs to enqueue, spread over the time of the faults."""

    job: Enqueuer[..., Any]
    payload: str
    """A JSON object; `{n}` is the number of the job, from 1."""
    count: int

    def arguments(self, number: int) -> dict[str, Any]:
        """The arguments of one job."""
        text = self.payload.replace("{n}", str(number))
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            reason = f"must be a JSON object with the arguments of the job, got {text!r}"
            raise InvalidInput("payload", reason) from None


class Check(msgspec.Struct, frozen=True):
    """A query, and what it should return: one value, or no rows."""

    query: str
    expected: str | None

    def result(self, connect: Callable[[], Any]) -> str | None:
        """One value as text, the first rows as JSON, or None for no rows. It cannot write."""
        try:
            with closing(connect()) as connection:
                is_sqlite = isinstance(connection, sqlite3.Connection)
                connection.execute(
                    "pragma query_only = on" if is_sqlite else "set transaction read only"
                )
                cursor = connection.execute(self.query)
                rows = [tuple(row) for row in cursor.fetchmany(SHOWN)]
        except Exception as error:
            reason = f"must be a query of your tables: {str(error).partition(chr(10))[0]}"
            raise InvalidInput("check", reason) from error
        if cursor.description is None:
            raise InvalidInput("check", f"must be a query, got {self.query!r}")
        one = len(rows) == 1 and len(rows[0]) == 1
        text = json.dumps(rows[0][0] if one else rows, default=str, ensure_ascii=False)
        return (text.strip('"') if one else text) if rows else None


class Report(msgspec.Struct):
    """What was done to the workers, and what became of the jobs."""

    seed: int
    kills: int = 0
    freezes: int = 0
    cuts: int | None = 0
    """Connections that were cut; None where that is not possible."""
    ended: int = 0
    """Workers that ended by themselves."""
    enqueued: int = 0
    replayed: int = 0
    """Jobs that were buried because their workers vanished too often, and replayed afterwards."""
    jobs: dict[str, int] = {}
    """By state, at the end."""
    delivered_again: int = 0
    """Jobs that were delivered more than once."""
    left: int = 0
    """Jobs that have not ended, without those that are scheduled for later."""
    expected: str | None = None
    result: str | None = None
    """What the query returned."""

    @property
    def holds(self) -> bool:
        """Whether the query returned what it should, and jobs ran, all have ended, none is dead."""
        ended = bool(self.jobs) and not self.left and not self.jobs.get("dead")
        return ended and self.result == self.expected


class WorkerProcess:
    """A process of `onefold worker`, in a group with the processes of its isolated jobs."""

    def __init__(self, command: Sequence[str], name: str) -> None:
        self.name: str = name
        self._alarm: threading.Timer | None = None
        self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own command
            command,
            # PostgreSQL lists the connections of libpq under this name.
            env={**os.environ, "PGAPPNAME": name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    @property
    def frozen(self) -> bool:
        """Whether it is frozen."""
        return self._alarm is not None

    def freeze(self, seconds: float) -> None:
        """Stop it for some time. A thread continues it: we may wait for a lock that it holds."""
        self._signal(signal.SIGSTOP)
        self._alarm = threading.Timer(seconds, self.wake)
        self._alarm.daemon = True
        self._alarm.start()

    def wake(self) -> None:
        """Let it continue."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._signal(signal.SIGCONT)
            self._alarm = None

    def kill(self) -> None:
        """End it at once."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._process.wait()

    def stop(self) -> None:
        """Ask it to end."""
        self.wake()
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self.status is None:
            os.killpg(self._process.pid, number)


class Chaos:
    """Faults for the workers of one application, for some time. For one run."""

    def __init__(
        self,
        onefold: Onefold,
        app: str,
        *,
        workers: int,
        seconds: float,
        lease: timedelta,
        drain: timedelta,
        seed: int,
        tenant: str = "",
        load: Load | None = None,
        check: Check | None = None,
    ) -> None:
        """`app` is the application as `onefold worker` takes it."""
        self._calls: Tenant = onefold.tenant(tenant) if tenant else onefold
        self._app = app
        self._wanted = workers
        self._seconds = seconds
        self._lease = worker_settings({"lease": lease}).lease.total_seconds()
        self._drain = drain.total_seconds()
        self._load = load
        self._check = check
        database = onefold.context.database
        self._connect = snapshots(database.url, "").connect
        self._random = random.Random(seed)
        self._faults = [self._kill, self._freeze]
        self._deck = list[Any]()
        self._name = f"chaos-{os.getpid()}"
        self._numbers = count(1)
        self._workers: list[WorkerProcess] = []
        self._before: set[str] = set()
        self._replayed: set[str] = set()
        self.report: Report = Report(seed, cuts=None)
        # The name in a URL wins over that of our environment, so such connections are not found.
        if database.url.startswith("postgres") and "application_name" not in database.url:
            self.report.cuts = 0
            self._faults.append(self._cut)

    def run(self, tell: Callable[[float], None]) -> Report:
        """Do it; `tell` is called with the seconds that have passed, also while jobs drain."""
        if self._check is not None:
            self._check.result(self._connect)  # a wrong query is found before, not after
            self.report.expected = self._check.expected
        self._before = {job.id for job in enqueued(self._calls) if job.state in ENDED}
        try:
            began = self._begin(tell)
            self._torment(began, tell)
            until = time.monotonic() + self._drain
            while self._unfinished() and (now := time.monotonic()) < until:
                self._enqueue(1)
                self._replace_ended()
                tell(now - began)
                time.sleep(STEP)
            self._stop()
        finally:
            for worker in self._workers:
                worker.kill()
        return self._finished()

    def _begin(self, tell: Callable[[float], None]) -> float:
        """Start the workers. The time begins when one of them has run a job, or after a while."""
        self._enqueue(min(self._lease / self._seconds, 1))
        until = time.monotonic() + STARTED
        while True:
            self._replace_ended()
            newest = self._calls.find(newest_first=True, limit=HELD)
            begun = any((job.worker or "").startswith(self._name) for job in newest)
            if begun or self._holders() or not self._unfinished() or time.monotonic() > until:
                return time.monotonic()
            tell(0)
            time.sleep(STEP)

    def _torment(self, began: float, tell: Callable[[float], None]) -> None:
        next_fault = began
        while (passed := time.monotonic() - began) < self._seconds:
            self._replace_ended()
            if began + passed >= next_fault:
                # Together with a fault: so that workers hold jobs then, also if these are short.
                self._enqueue(min(passed + self._lease, self._seconds) / self._seconds)
                if self._fault(idle=began + passed > next_fault + self._lease):
                    pause = self._lease * self._random.uniform(0.25, 1)
                    next_fault = time.monotonic() + pause
            tell(passed)
            time.sleep(STEP)

    def _enqueue(self, share: float) -> None:
        """Enqueue until this share of the jobs is enqueued."""
        load, first = self._load, self.report.enqueued + 1
        if load is not None and (last := ceil(load.count * share)) >= first:
            numbers = range(first, last + 1)
            # A frozen worker may hold the lock of a SQLite file: try again later.
            with suppress(Busy):
                load.job.enqueue_many([load.job.call(**load.arguments(n)) for n in numbers])
                self.report.enqueued = last

    def _replace_ended(self) -> None:
        """Start workers in place of those that have ended."""
        running = [worker for worker in self._workers if worker.status is None]
        for worker in self._workers:
            if worker.status == USAGE_ERROR:
                raise UsageError(
                    f"A worker ended with status {USAGE_ERROR}. To see why, run: onefold worker"
                    f" {self._app}"
                )
            self.report.ended += worker.status is not None
        self._workers = running
        while len(self._workers) < self._wanted:
            self._start()

    def _start(self) -> None:
        number = next(self._numbers)
        command = [sys.executable, "-m", "onefold", "worker", self._app]
        # With our process id: it stops when we are killed.
        command += [f"--as-process={number}:{os.getpid()}", f"--name={self._name}"]
        command += [f"--lease={self._lease:f}s", f"--grace={GRACE:f}s", "--poll=250ms"]
        self._workers.append(WorkerProcess(command, f"{self._name}-{number}"))

    def _fault(self, *, idle: bool) -> bool:
        """Do the next fault to a worker that holds a job, or to any; False if there is none."""
        ready = self._holders() or [each for each in self._workers if idle and not each.frozen]
        if not ready:
            return False
        if not self._deck:
            # All faults in turn: a short run has each of them, too.
            self._deck = self._random.sample(self._faults, len(self._faults))
        # From the start of a handler to long after it, on a logarithmic scale.
        time.sleep(SOONEST * (LATEST / SOONEST) ** self._random.random())
        # One number, for any number of workers: so a seed gives the same faults again.
        self._deck.pop()(ready[int(self._random.random() * len(ready))])
        return True

    def _holders(self) -> list[WorkerProcess]:
        """The workers that hold jobs and are not frozen."""
        names = {job.worker for job in self._calls.find(state="running", limit=HELD)}
        return [each for each in self._workers if each.name in names and not each.frozen]

    def _kill(self, worker: WorkerProcess) -> None:
        worker.kill()
        self._workers.remove(worker)
        self.report.kills += 1

    def _freeze(self, worker: WorkerProcess) -> None:
        worker.freeze(self._lease * self._random.uniform(1.5, 3))
        self.report.freezes += 1

    def _cut(self, worker: WorkerProcess) -> None:
        with closing(self._connect()) as connection:
            (cut,) = connection.execute(_CUT, [worker.name]).fetchone()
        self.report.cuts = (self.report.cuts or 0) + cut

    def _unfinished(self) -> bool:
        """Whether there is still something to wait for. Jobs that we had buried are replayed."""
        if any(worker.frozen for worker in self._workers):
            return True
        if self._load is not None and self.report.enqueued < self._load.count:
            return True
        if any(self._calls.find(state=state, limit=1).jobs for state in LEFT):
            return True
        buried = {job.id for job in self._jobs() if job.state == "dead" and job.reason in VANISHED}
        for job_id in buried - self._replayed:
            self._calls.replay(job_id)
        again = not buried <= self._replayed
        self._replayed |= buried
        return again

    def _stop(self) -> None:
        """Let the handlers end, so that none has an effect after the check."""
        for worker in self._workers:
            worker.stop()
        until = time.monotonic() + GRACE + MARGIN
        while any(each.status is None for each in self._workers) and time.monotonic() < until:
            time.sleep(STEP)

    def _jobs(self) -> list[Job]:
        """The jobs that had not ended at the start, and newer ones."""
        return [job for job in enqueued(self._calls) if job.id not in self._before]

    def _finished(self) -> Report:
        report, jobs = self.report, self._jobs()
        report.jobs = dict(Counter(job.state for job in jobs))
        report.replayed = len(self._replayed)
        report.delivered_again = sum(job.fence > 1 for job in jobs)
        report.left = sum(report.jobs.get(state, 0) for state in LEFT)
        if self._check is not None:
            report.result = self._check.result(self._connect)
        return report
