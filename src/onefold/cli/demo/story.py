"""The chapters of the demo. A fact that does not hold ends it."""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import ExitStack, closing
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from onefold import Fixed, Onefold, __version__
from onefold.cli.demo.processes import (
    CONTEXT,
    TIMEOUT,
    PromiseBroken,
    deliver,
    enqueue_event,
    invoice,
    run_worker,
    started,
    work,
)

if TYPE_CHECKING:
    from pathlib import Path

    from onefold import Job
    from onefold.cli.demo.command import DemoOutput

LEASE = timedelta(milliseconds=200)
WORKERS_LEASE = timedelta(seconds=1)


def run_demo(output: DemoOutput, path: Path, *, processes: int) -> None:
    """Run all chapters on one SQLite file."""
    url = f"sqlite:///{path.absolute()}"
    output.open(f"Onefold {__version__} on one SQLite file, {path}")
    with Onefold(url) as onefold:
        onefold.migrate()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "create table if not exists demo_invoice (number text primary key, total integer)"
            )
            # Without a primary key: only Onefold prevents a second receipt.
            connection.execute(
                "create table if not exists demo_receipt (number text, attempt integer)"
            )
        demo = _Demo(output, onefold, url, path)
        job_id = demo.delivered_at_once(processes)
        demo.killed_in_mid_transaction()
        demo.to_the_commit()
        demo.frozen_worker(job_id)
        demo.delivered_late(job_id)
        demo.killed_worker()
        demo.done_once()


class _Demo:
    """The chapters, and the names that they share."""

    def __init__(self, output: DemoOutput, onefold: Onefold, url: str, path: Path) -> None:
        # The names are new in every run, so a file can be reused.
        self.run = uuid4().hex[:6]
        self.event = f"evt_{self.run}"
        self.queue = f"webhooks-{self.run}"
        self.mail = f"mail-{self.run}"
        self.orders = f"orders-{self.run}"
        self.output = output
        self.onefold = onefold
        self.url = url
        self.path = path

    def delivered_at_once(self, processes: int) -> str:
        output = self.output
        output.chapter("One webhook, delivered many times at once")
        output.say(f"{processes} processes wait for each other, then each enqueues {self.event}.")
        barrier = CONTEXT.Barrier(processes)
        with ExitStack() as stack:
            all_processes = [
                stack.enter_context(started(deliver, self.url, self.event, self.queue, barrier))
                for _ in range(processes)
            ]
            answers: list[tuple[str, bool]] = [each.receive() for each in all_processes]
            for each, (job_id, duplicate) in zip(all_processes, answers, strict=True):
                word = "duplicate of" if duplicate else "new job"
                output.detail(f"process {each.pid:<8}{word:<13}{job_id}")

        ids = {job_id for job_id, _ in answers}
        new = [job_id for job_id, duplicate in answers if not duplicate]
        output.fact(
            f"one job is new, and {processes - 1} answers are duplicates", holds=len(new) == 1
        )
        output.fact("every process received the same id", holds=ids == set(new))
        output.fact("one job is stored", holds=len(self.onefold.find(queue=self.queue)) == 1)
        counted = self.onefold.keys.duplicates(new[0]).count
        output.fact(f"{processes - 1} duplicates were counted", holds=counted == processes - 1)
        return new[0]

    def killed_in_mid_transaction(self) -> None:
        self.output.chapter("A process is killed in the middle of its transaction")
        with started(invoice, self.url, self.path, self.run, self.mail) as process:
            process.receive()
            self.output.say(
                f"Process {process.pid} has inserted an invoice and enqueued its email."
            )
            self.output.say("It is killed before the commit.")
            code = process.end(signal.SIGKILL)
        self.output.fact("it ended with SIGKILL", holds=code == -signal.SIGKILL)
        self.output.fact("there is no invoice", holds=not self._invoices())
        self.output.fact("there is no job either", holds=not self._emails())

    def to_the_commit(self) -> None:
        self.output.chapter("The same again, to the commit")
        with started(invoice, self.url, self.path, self.run, self.mail) as process:
            job_id, duplicate = process.receive()
            self.output.fact("the key of the killed process was free", holds=not duplicate)
            process.proceed()
            self.output.say(f"Process {process.pid} has {process.receive()}.")
        self.output.fact("there is one invoice", holds=len(self._invoices()) == 1)
        self.output.fact("and its job", holds=[job.id for job in self._emails()] == [job_id])

    def frozen_worker(self, job_id: str) -> None:
        output, deliveries = self.output, self.onefold.deliveries
        output.chapter("A worker freezes while it runs a job")
        with started(work, self.url, self.queue, LEASE) as frozen:
            taken, first_fence = frozen.receive()
            frozen.signal(signal.SIGSTOP)
            output.say(f"Process {frozen.pid} has taken the webhook's job and is frozen (SIGSTOP).")
            output.fact("it was the job of the webhook", holds=taken == job_id)
            self._wait_for_rescue(job_id)
            output.say(
                f"Its lease of {LEASE.total_seconds():g} s has ended, and the job was rescued."
            )

            (job,) = deliveries.take([self.queue], worker="demo", lease=timedelta(minutes=1))
            output.fact(
                f"the job is taken again: fence {job.fence} after fence {first_fence}, attempt"
                f" {job.attempt}",
                holds=job.id == job_id and job.fence > first_fence,
            )
            frozen.proceed()
            frozen.signal(signal.SIGCONT)
            late = frozen.receive()
            output.say(f"Process {frozen.pid} continues (SIGCONT) and reports success.")
            output.fact(f"its report is rejected: {late}", holds=late == "lost")
        (ended,) = deliveries.finish([job])
        output.fact(
            f"the second delivery finishes: {ended.status}", holds=ended.status == "accepted"
        )

    def _wait_for_rescue(self, job_id: str) -> None:
        """Rescue the job, as workers do. The lease ends by the real clock, so wait for it."""
        deadline = time.monotonic() + TIMEOUT
        while (job := self.onefold.get(job_id)) is not None and job.state == "running":
            if time.monotonic() > deadline:
                raise PromiseBroken(f"job {job_id} is rescued within {TIMEOUT:g} seconds")
            if not self.onefold.deliveries.rescue().requeued:
                time.sleep(0.02)

    def delivered_late(self, job_id: str) -> None:
        output = self.output
        output.chapter("The webhook is delivered once more, after the job has ended")
        answer = enqueue_event(self.onefold, self.event, self.queue)
        output.detail(repr(answer))
        same = answer.id == job_id and answer.duplicate
        output.fact("the publish key still returns the same id", holds=same)
        output.fact(f"that job is {answer.state}", holds=answer.state == "completed")
        output.fact("nothing was enqueued", holds=len(self.onefold.find(queue=self.queue)) == 1)

    def killed_worker(self) -> None:
        output = self.output
        output.chapter("A worker is killed in the middle of a job")
        order = self.onefold.enqueue(
            "charge", {"order": self.run}, queue=self.orders, backoff=Fixed(timedelta(0))
        )
        with started(run_worker, self.url, self.orders, WORKERS_LEASE) as first:
            first.receive()
            output.say(f"Process {first.pid} is a worker. Its handler has inserted a receipt in")
            output.say("run.transaction(), and is killed before the commit.")
            code = first.end(signal.SIGKILL)
        output.fact("it ended with SIGKILL", holds=code == -signal.SIGKILL)
        output.fact("there is no receipt", holds=not self._receipts())
        with started(run_worker, self.url, self.orders, WORKERS_LEASE) as second:
            attempt = second.receive()
            output.say(
                f"Process {second.pid} is another worker. It has rescued the job, and runs it."
            )
            second.proceed()
            result = order.result(timeout=timedelta(seconds=TIMEOUT))
            output.fact(
                f"the job is completed, in attempt {attempt}", holds=result == {"attempt": attempt}
            )
            output.fact(
                "there is one receipt, of that attempt", holds=self._receipts() == [attempt]
            )
            attempts = self.onefold.deliveries.attempts(order.id)
            for each in attempts:
                output.detail(f"attempt {each.number}   {each.worker:<30} {each.outcome}")
            output.fact(
                "its history shows the earlier attempts, whose leases expired",
                holds={each.outcome for each in attempts[:-1]} == {"lease expired"},
            )
            code = second.end(signal.SIGTERM)
        output.fact("after SIGTERM, the worker stops with status 0", holds=code == 0)

    def done_once(self) -> None:
        self.output.chapter("Work without a job: once()")
        digest = sha256(self.run.encode()).hexdigest()
        runs, results = 0, list[object]()
        for _ in range(2):
            with self.onefold.once("import", digest) as claim:
                if claim.won:
                    runs += 1
                    claim.result = {"rows": 1200}
            results.append(claim.result)
        self.output.say(f"The same file is imported twice; both calls return {results[1]}.")
        self.output.fact("the import ran once", holds=runs == 1)
        same = results[0] == results[1]
        self.output.fact("the second call returns the stored result", holds=same)

    def _emails(self) -> list[Job]:
        return list(self.onefold.find(queue=self.mail))

    def _invoices(self) -> list[Any]:
        return self._read("select total from demo_invoice where number = ?")

    def _receipts(self) -> list[Any]:
        return self._read("select attempt from demo_receipt where number = ?")

    def _read(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as connection:
            return [value for (value,) in connection.execute(query, (self.run,))]
