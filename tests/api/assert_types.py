"""What a type checker makes of the public API. Never run: pyright and mypy read it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, assert_type

from onefold import (
    Enqueued,
    EnqueuedMany,
    Enqueuer,
    Job,
    JobCall,
    JobPage,
    Onefold,
    Payload,
    Run,
    Schedule,
    Tenant,
    Ticked,
    Unique,
    Within,
)
from onefold.claims import Busy, Claim, ClaimAnswer, Mismatch, OnceClaim, Replay, Unknown, Won
from onefold.effects.lock import Lock
from onefold.model.delivery import Ended, Heartbeat
from onefold.model.stored_key import Duplicates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from onefold import (
        Delivery,
        NewJob,
    )

SECOND = timedelta(seconds=1)


def jobs(onefold: Onefold, new: list[NewJob]) -> None:
    """Every call about jobs."""
    assert_type(onefold.enqueue("email", {"to": 42}, unique_key="k", delay=SECOND), Enqueued)
    many = assert_type(onefold.enqueue_many(new, on_duplicate="replace"), EnqueuedMany)
    assert_type(many[0], Enqueued)
    assert_type([one.id for one in many], list[str])
    assert_type(onefold.get("id"), Job | None)
    page = assert_type(onefold.find(state="dead", limit=5), JobPage)
    assert_type([job.kind for job in page], list[str])
    assert_type(page.next, str | None)
    assert_type(onefold.cancel("id"), bool)
    assert_type(onefold.replay("id", fresh=True), Enqueued)
    assert_type(onefold.dead.replay(queue="email"), EnqueuedMany)
    assert_type(onefold.delete("id"), bool)
    assert_type(onefold.keys.duplicates("id"), Duplicates)


def wrong(onefold: Onefold) -> None:
    """What a checker refuses; an ignore that is not needed is an error by itself."""
    onefold.enqueue("email", uniqe_key="k")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    onefold.enqueue("email", on_duplicate="drop")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    onefold.enqueue("email", delay=5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def owners(onefold: Onefold, connection: object) -> None:
    """Tenants and transactions have the same calls."""
    tenant = assert_type(onefold.tenant("acme"), Tenant)
    within = assert_type(tenant.within(connection), Within)
    assert_type(within.enqueue("email"), Enqueued)
    with onefold as entered:
        assert_type(entered, Onefold)


def deliveries(onefold: Onefold) -> None:
    """The engine's calls take taken jobs, or names of deliveries."""
    taken = assert_type(
        onefold.deliveries.take(["email"], limit=5, worker="w", lease=SECOND), list[Job]
    )
    assert_type(onefold.deliveries.finish(taken, results={"id": 1}), list[Ended])
    named: list[Delivery] = []
    assert_type(onefold.deliveries.retry(named, after=SECOND), list[Ended])
    assert_type(onefold.deliveries.heartbeat(taken, lease=SECOND), list[Heartbeat])
    ended, more = onefold.deliveries.finish_and_take(taken, worker="w", lease=SECOND)
    assert_type(ended, list[Ended])
    assert_type(more, list[Job])


def claims(onefold: Onefold) -> str:
    """An answer is one of five, and a match over them is complete."""
    answer = assert_type(onefold.claim("import", "k"), ClaimAnswer)
    match answer:
        case Won(claim):
            assert_type(claim, Claim)
            assert_type(onefold.keys.release(claim), bool)
            return "won"
        case Replay(result):
            assert_type(result, Any)
            return "replay"
        case Busy(retry_after):
            assert_type(retry_after, timedelta)
            return "busy"
        case Mismatch(key):
            return key
        case Unknown(key, fence, since):
            assert_type(fence, int)
            assert_type(since, datetime | None)
            return key


def once(onefold: Onefold) -> None:
    """A context manager and a decorator that keeps the arguments."""
    with onefold.once("import", "k") as claim:
        assert_type(claim, OnceClaim)
    with onefold.once("import", "k", busy="skip") as maybe:
        assert_type(maybe, OnceClaim | None)

    @onefold.once("square")
    def square(number: int, *, twice: bool = False) -> int:
        return number * number * (2 if twice else 1)

    assert_type(square(2, twice=True), int)
    square("two")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

    @onefold.once("fetch")
    async def fetch(url: str) -> bytes:
        return url.encode()

    checked: Callable[[str], Awaitable[bytes]] = fetch
    del checked

    @onefold.once("cube", busy="skip")
    def cube(number: int) -> int:
        return number**3

    assert_type(cube(2), int | None)


def locks(onefold: Onefold) -> None:
    """A lock of each colour."""
    with onefold.lock("report", ttl=SECOND) as lock:
        assert_type(lock, Lock)
        assert_type(lock.fence, int)


def declared(onefold: Onefold, connection: object) -> None:
    """A declared job takes what its function takes, and gives back what it returns."""

    @onefold.job
    def add(left: int, right: int = 1) -> str:
        return str(left + right)

    assert_type(add(1, right=2), str)
    answer = add.enqueue(1, right=2)
    assert_type(answer, Enqueued[str])
    assert_type(answer.id, str)
    assert_type(answer.result(timeout=SECOND), str)
    assert_type(add.using(delay=SECOND, unique_key=None).enqueue(left=1), Enqueued[str])
    assert_type(add.within(connection).enqueue(1).result(), str)
    assert_type(add.tenant("acme").unique_key(1), str)
    many = add.enqueue_many([add.call(1), add.call(2, 3)])
    assert_type(many, EnqueuedMany[str])
    assert_type(many[0].result(), str)
    assert_type(add.kind, str)

    add.enqueue("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    add.enqueue()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    add.enqueue(1, 2, 3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    add.enqueue(left=1, rigth=2)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    add.using(delay=SECOND).enqueue("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    add.using(dealy=SECOND)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    add.within(connection).enqueue("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    add.call("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    add.unique_key("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    add.enqueue_many([1])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
    add("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

    @onefold.job(kind="shout")
    def shout(text: str) -> int:
        return len(text)

    add.enqueue_many([shout.call("x")])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
    named: Enqueuer[..., int] = shout
    del named

    onefold.job(uniqe="x")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]


async def declared_coroutines(onefold: Onefold) -> None:
    """Functions and enqueues have colours of their own."""

    @onefold.job(queue="slow")
    async def fetch(url: str) -> bytes:
        return url.encode()

    assert_type(await fetch("x"), bytes)
    assert_type(fetch.enqueue("x"), Enqueued[bytes])
    assert_type(await fetch.aenqueue("x"), Enqueued[bytes])
    assert_type(await (await fetch.aenqueue("x")).aresult(), bytes)
    call: JobCall[..., bytes] = fetch.call("x")
    assert_type(await fetch.aenqueue_many([call]), EnqueuedMany[bytes])
    await fetch.aenqueue(5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def declared_with_a_run(onefold: Onefold, run: Run) -> None:
    """A run that comes first is the worker's to give; elsewhere the arguments are left open."""

    @onefold.job
    def charge(run: Run, order: int, *, twice: bool = False) -> str:
        return f"{run.id} {order} {twice}"

    assert_type(charge.enqueue(7, twice=True), Enqueued[str])
    assert_type(charge(run, 7), str)
    charge.enqueue("seven")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    charge.enqueue(run, 7)  # type: ignore[call-arg,arg-type] # pyright: ignore[reportCallIssue]
    charge.enqueue(7, run=run)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    charge(7)  # type: ignore[call-arg,arg-type] # pyright: ignore[reportCallIssue]

    @onefold.job(queue="slow")
    async def acharge(run: Run, order: int) -> str:
        return f"{run.id} {order}"

    assert_type(acharge.enqueue(order=7), Enqueued[str])
    running: Coroutine[Any, Any, str] = acharge(run, 7)
    running.close()
    acharge.enqueue(order="seven")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

    @onefold.job
    def refund(order: int, run: Run) -> str:
        return f"{run.id} {order}"

    assert_type(refund.enqueue(order=7), Enqueued[str])
    assert_type(refund(7, run), str)


def declared_without_a_run(onefold: Onefold) -> None:
    """Nobody's first argument is taken for a run."""

    @onefold.job
    def anything(payload: Any, number: int) -> None:
        del payload, number

    @onefold.job
    def some(thing: object) -> None:
        del thing

    anything.enqueue({"a": 1}, 2)
    some.enqueue({"a": 1})
    some.enqueue()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    anything.enqueue(2)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


class Event(TypedDict):
    """A payload with a type."""

    id: str


def declared_with_a_payload(onefold: Onefold, run: Run) -> None:
    """The whole payload is any JSON, or what its annotation says."""

    @onefold.job(unique=Unique("id"), extra="forbid")
    def plain(event: Payload) -> str:
        return str(event["id"])

    assert_type(plain.enqueue({"id": "evt_1"}), Enqueued[str])
    assert_type(plain(["anything"]), str)
    plain.enqueue()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]

    @onefold.job
    def typed(run: Run, event: Annotated[Event, Payload]) -> str:
        return run.id + event["id"]

    assert_type(typed.enqueue({"id": "evt_1"}), Enqueued[str])
    assert_type(typed(run, {"id": "evt_1"}), str)
    typed.enqueue({"id": 1})  # type: ignore[typeddict-item] # pyright: ignore[reportArgumentType]
    onefold.job(extra="drop")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]


def schedules(onefold: Onefold, run: Run) -> None:
    """A scheduled job keeps its types, whichever way it became one."""

    @onefold.cron("0 3 * * *", tz="Europe/Berlin", catch_up="all", catch_up_most=5)
    @onefold.job(queue="reports")
    def report(region: str = "eu") -> int:
        return len(region)

    assert_type(report("us"), int)
    assert_type(report.enqueue("us"), Enqueued[int])
    report.enqueue(7)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    call: JobCall[..., int] = onefold.cron("0 4 * * *", name="us")(report.call("us"))
    del call

    @onefold.cron("@hourly")
    def tidy(run: Run) -> str:
        return run.id

    assert_type(tidy(run), str)
    assert_type(tidy.enqueue(), Enqueued[str])

    @onefold.cron("@daily")
    async def fetch() -> bytes:
        return b""

    assert_type(fetch.enqueue(), Enqueued[bytes])
    onefold.cron("@daily", catch_up="some")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert_type(onefold.schedules.save("s", "* * * * *", kind="k", unique_key="u"), Schedule)
    assert_type(onefold.schedules.run_now("s"), Enqueued)
    assert_type(onefold.deliveries.tick(), Ticked)
