"""The chapters of the demo. A fact that does not hold ends it."""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import ExitStack, closing
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from onefold import Fixed, Onefold, __version__
from onefold.cli.demo.processes import (
    CONTEXT,
    PATIENCE,
    Actor,
    PromiseBroken,
    actor,
    deliver,
    enqueue_event,
    invoice,
    run_worker,
    work,
)

if TYPE_CHECKING:
    from pathlib import Path

    from onefold import Job
    from onefold.cli.demo.command import DemoOutput

LEASE = timedelta(milliseconds=200)
WORKERS_LEASE = timedelta(seconds=1)


class Set(NamedTuple):
    """What all chapters share. The names are new in every run, so a file can be reused."""

    onefold: Onefold
    url: str
    path: Path
    run: str
    event: str
    queue: str
    mail: str
    orders: str


def tell(stage: DemoOutput, path: Path, *, processes: int) -> None:
    """Run all chapters on one SQLite file."""
    url = f"sqlite:///{path.absolute()}"
    run = uuid4().hex[:6]
    stage.open(f"Onefold {__version__} on one SQLite file, {path}")
    with Onefold(url) as onefold:
        scene = Set(
            onefold,
            url,
            path,
            run,
            event=f"evt_{run}",
            queue=f"webhooks-{run}",
            mail=f"mail-{run}",
            orders=f"orders-{run}",
        )
        onefold.migrate()
        _make_tables(path)

        job_id = _delivered_at_once(stage, scene, processes)
        _killed_in_mid_transaction(stage, scene)
        _to_the_commit(stage, scene)
        _frozen_worker(stage, scene, job_id)
        _delivered_late(stage, scene, job_id)
        _killed_worker(stage, scene)
        _done_once(stage, scene)


def _make_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "create table if not exists demo_invoice (number text primary key, total integer)"
        )
        # Without a primary key: only Onefold prevents a second receipt.
        connection.execute("create table if not exists demo_receipt (number text, attempt integer)")


def _delivered_at_once(stage: DemoOutput, scene: Set, processes: int) -> str:
    stage.chapter("One webhook, delivered many times at once")
    stage.say(f"{processes} processes wait for each other, then each enqueues {scene.event}.")
    barrier = CONTEXT.Barrier(processes)
    with ExitStack() as stack:
        actors: list[Actor] = [
            stack.enter_context(actor(deliver, scene.url, scene.event, scene.queue, barrier))
            for _ in range(processes)
        ]
        answers: list[tuple[str, bool]] = [each.hear() for each in actors]
        for each, (job_id, duplicate) in zip(actors, answers, strict=True):
            word = "duplicate of" if duplicate else "new job"
            stage.detail(f"process {each.pid:<8}{word:<13}{job_id}")

    ids = {job_id for job_id, _ in answers}
    new = [job_id for job_id, duplicate in answers if not duplicate]
    stage.fact(f"one job is new, and {processes - 1} answers are duplicates", holds=len(new) == 1)
    stage.fact("every process received the same id", holds=ids == set(new))
    stage.fact("one job is stored", holds=len(scene.onefold.find(queue=scene.queue)) == 1)
    counted = scene.onefold.keys.duplicates(new[0]).count
    stage.fact(f"{processes - 1} duplicates were counted", holds=counted == processes - 1)
    return new[0]


def _killed_in_mid_transaction(stage: DemoOutput, scene: Set) -> None:
    stage.chapter("A process is killed in the middle of its transaction")
    with actor(invoice, scene.url, scene.path, scene.run, scene.mail) as doomed:
        doomed.hear()
        stage.say(f"Process {doomed.pid} has inserted an invoice and enqueued its email.")
        stage.say("It is killed before the commit.")
        code = doomed.kill()
    stage.fact("it ended with SIGKILL", holds=code == -signal.SIGKILL)
    stage.fact("there is no invoice", holds=_invoices(scene) == 0)
    stage.fact("there is no job either", holds=not _emails(scene))


def _to_the_commit(stage: DemoOutput, scene: Set) -> None:
    stage.chapter("The same again, to the commit")
    with actor(invoice, scene.url, scene.path, scene.run, scene.mail) as second:
        job_id, duplicate = second.hear()
        stage.fact("the key of the killed process was free", holds=not duplicate)
        second.go_on()
        stage.say(f"Process {second.pid} has {second.hear()}.")
    stage.fact("there is one invoice", holds=_invoices(scene) == 1)
    stage.fact("and its job", holds=[job.id for job in _emails(scene)] == [job_id])


def _invoices(scene: Set) -> int:
    with closing(sqlite3.connect(scene.path)) as connection:
        query = "select count(*) from demo_invoice where number = ?"
        count: int = connection.execute(query, (scene.run,)).fetchone()[0]
        return count


def _emails(scene: Set) -> list[Job]:
    return list(scene.onefold.find(queue=scene.mail))


def _frozen_worker(stage: DemoOutput, scene: Set, job_id: str) -> None:
    stage.chapter("A worker freezes while it runs a job")
    engine = scene.onefold.deliveries
    with actor(work, scene.url, scene.queue, LEASE) as frozen:
        taken, first_fence = frozen.hear()
        frozen.freeze()
        stage.say(f"Process {frozen.pid} has taken the webhook's job and is frozen (SIGSTOP).")
        stage.fact("it was the job of the webhook", holds=taken == job_id)
        _wait_for_rescue(scene.onefold, job_id)
        stage.say(f"Its lease of {LEASE.total_seconds():g} s has ended, and the job was rescued.")

        (job,) = engine.take([scene.queue], worker="demo", lease=timedelta(minutes=1))
        stage.fact(
            f"the job is taken again: fence {job.fence} after fence {first_fence}, attempt"
            f" {job.attempt}",
            holds=job.id == job_id and job.fence > first_fence,
        )
        frozen.go_on()
        frozen.thaw()
        late = frozen.hear()
        stage.say(f"Process {frozen.pid} continues (SIGCONT) and reports success.")
        stage.fact(f"its report is rejected: {late}", holds=late == "lost")
    (ended,) = engine.finish([job])
    stage.fact(f"the second delivery finishes: {ended.status}", holds=ended.status == "accepted")


def _wait_for_rescue(onefold: Onefold, job_id: str) -> None:
    """Rescue the job, as workers do. The lease ends by the real clock, so wait for it."""
    deadline = time.monotonic() + PATIENCE
    while (job := onefold.get(job_id)) is not None and job.state == "running":
        if time.monotonic() > deadline:
            raise PromiseBroken(f"job {job_id} is rescued within {PATIENCE:g} seconds")
        if not onefold.deliveries.rescue().requeued:
            time.sleep(0.02)


def _delivered_late(stage: DemoOutput, scene: Set, job_id: str) -> None:
    stage.chapter("The webhook is delivered once more, after the job has ended")
    answer = enqueue_event(scene.onefold, scene.event, scene.queue)
    stage.detail(repr(answer))
    stage.fact(
        "the publish key still returns the same id",
        holds=answer.id == job_id and answer.duplicate,
    )
    stage.fact(f"that job is {answer.state}", holds=answer.state == "completed")
    stored = scene.onefold.find(queue=scene.queue)
    stage.fact("nothing was enqueued", holds=len(stored) == 1)


def _killed_worker(stage: DemoOutput, scene: Set) -> None:
    stage.chapter("A worker is killed in the middle of a job")
    order = scene.onefold.enqueue(
        "charge", {"order": scene.run}, queue=scene.orders, backoff=Fixed(timedelta(0))
    )
    with actor(run_worker, scene.url, scene.orders, WORKERS_LEASE) as doomed:
        doomed.hear()
        stage.say(f"Process {doomed.pid} is a worker. Its handler has inserted a receipt in")
        stage.say("run.transaction(), and is killed before the commit.")
        code = doomed.kill()
    stage.fact("it ended with SIGKILL", holds=code == -signal.SIGKILL)
    stage.fact("there is no receipt", holds=not _receipts(scene))
    with actor(run_worker, scene.url, scene.orders, WORKERS_LEASE) as second:
        attempt = second.hear()
        stage.say(f"Process {second.pid} is another worker. It has rescued the job, and runs it.")
        second.go_on()
        result = order.result(timeout=timedelta(seconds=PATIENCE))
        stage.fact(
            f"the job is completed, in attempt {attempt}", holds=result == {"attempt": attempt}
        )
        stage.fact("there is one receipt, of that attempt", holds=_receipts(scene) == [attempt])
        *vanished, last = scene.onefold.deliveries.attempts(order.id)
        for each in (*vanished, last):
            stage.detail(f"attempt {each.number}   {each.worker:<30} {each.outcome}")
        stage.fact(
            "its history shows the earlier attempts, whose leases expired",
            holds={each.outcome for each in vanished} == {"lease expired"},
        )
        code = second.stop()
    stage.fact("after SIGTERM, the worker stops with status 0", holds=code == 0)


def _receipts(scene: Set) -> list[int]:
    with closing(sqlite3.connect(scene.path)) as connection:
        query = "select attempt from demo_receipt where number = ?"
        return [attempt for (attempt,) in connection.execute(query, (scene.run,))]


def _done_once(stage: DemoOutput, scene: Set) -> None:
    stage.chapter("Work without a job: once()")
    digest = sha256(scene.run.encode()).hexdigest()
    runs, results = 0, list[object]()
    for _ in range(2):
        with scene.onefold.once("import", digest) as claim:
            if claim.won:
                runs += 1
                claim.result = {"rows": 1200}
        results.append(claim.result)
    stage.say(f"The same file is imported twice; both calls return {results[1]}.")
    stage.fact("the import ran once", holds=runs == 1)
    stage.fact("the second call returns the stored result", holds=results[0] == results[1])
