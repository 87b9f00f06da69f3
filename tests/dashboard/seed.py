"""A database as a shop has it after an hour: jobs in all states, of several kinds and queues."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from onefold import NewJob, Onefold, Payload, Run, Tenant
from onefold.testing.jobs import drain
from tests.fixtures.colours import Clock, Store

T = TypeVar("T")

HOSTILE = '<img src=x onerror="document.title=1">"\'</script><script>document.title=1</script>'
LEASE = timedelta(hours=1)


class CardDeclined(Exception):
    """The bank has refused."""


class Seeded(NamedTuple):
    """The ids of one job of each state, and of some with a story."""

    scheduled: str
    ready: str
    running: str
    retrying: str
    awaiting: str
    completed: str
    """With steps, a result and suppressed duplicates."""
    dead: str
    """With a traceback for each of its deliveries."""
    cancelled: str
    hostile: str
    """Everything that a caller can choose is HTML."""


def seed(store: Store) -> Seeded:
    """Fill a database. Workers ran an hour ago; some jobs wait or run now."""
    return in_thread(lambda: _seed(store))


def in_thread(call: Callable[[], T]) -> T:
    """The result of a call in a thread: the browser has an event loop in ours."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def bury(calls: Tenant, count: int, *, queue: str = "many", kind: str = "ship") -> list[str]:
    """Dead letters of one kind."""
    made = calls.enqueue_many([NewJob(kind, {"n": n}, queue=queue) for n in range(count)])
    left = count
    while left:
        taken = calls.deliveries.take([queue], worker="test", lease=LEASE, limit=left)
        calls.deliveries.bury(taken, reason="failed", error={"type": "OutOfStock"})
        left -= len(taken)
    return [item.id for item in made.items]


def states(onefold: Onefold, ids: list[str]) -> set[str]:
    """The states of jobs."""
    found = [onefold.get(job_id) for job_id in ids]
    return {"deleted" if job is None else job.state for job in found}


def _seed(store: Store) -> Seeded:
    clock = Clock(datetime.now(UTC) - timedelta(hours=1))
    past = store.open(clock=clock)
    _declare(past, clock)
    ids: dict[str, str] = {}
    for customer in range(41, 46):
        key = f"welcome:{customer}"
        past.enqueue("send_welcome", {"customer": customer}, queue="email", unique_key=key)
        clock.advance(timedelta(seconds=7))
    ids["completed"] = past.enqueue(
        "charge_card",
        {"order": "o-1042", "amount": 129.9, "currency": "EUR", "items": ["tea", "kettle"]},
        queue="payments",
        unique_key="charge:o-1042",
        unique_while="exists",
        tags=["eu", "vip"],
        metadata={"request": "checkout-7f3a", "actor": "web"},
        store_result=True,
    ).id
    for number in range(3):
        clock.advance(timedelta(seconds=2))
        past.enqueue(
            "charge_card",
            {"order": "o-1042", "amount": 129.9, "currency": "EUR", "items": ["tea", "kettle"]},
            queue="payments",
            unique_key="charge:o-1042",
            unique_while="exists",
            request_id=f"req-{number}-8c1d",
        )
    ids["dead"] = past.enqueue(
        "charge_card",
        {"order": "o-1043", "amount": 20.0, "currency": "EUR", "card": "declined"},
        queue="payments",
        unique_key="charge:o-1043",
        max_attempts=3,
        tags=["eu"],
    ).id
    for shelf in ("north", "south"):
        past.enqueue("sync_inventory", {"shelf": shelf}, max_attempts=1)
    ids["retrying"] = past.enqueue("sync_inventory", {"shelf": "east"}, max_attempts=20).id
    for number in range(12):
        past.enqueue("render_invoice", {"number": 2000 + number}, queue="documents")
        clock.advance(timedelta(seconds=11))
    for _ in range(3):
        drain(past, raises=False)
        clock.advance(timedelta(minutes=8))
    past.context.duplicate_log.flush()
    _now(store.open(), ids)
    return Seeded(**ids)


def _now(onefold: Onefold, ids: dict[str, str]) -> None:
    ids["hostile"] = onefold.enqueue(
        "import_catalog",
        {HOSTILE: HOSTILE},
        queue="hostile",
        unique_key=HOSTILE,
        tags=[HOSTILE],
        metadata={"note": HOSTILE},
        max_attempts=1,
    ).id
    (taken,) = onefold.deliveries.take(["hostile"], worker=HOSTILE, lease=LEASE)
    error = {"type": HOSTILE, "message": HOSTILE, "traceback": HOSTILE}
    onefold.deliveries.bury([taken], reason=HOSTILE, error=error)
    ids["cancelled"] = onefold.enqueue("send_receipt", {"order": "o-1001"}, queue="email").id
    onefold.cancel(ids["cancelled"], reason="the customer has cancelled the order")
    for state, kind, queue in (
        ("running", "render_invoice", "reports"),
        ("awaiting", "notify_partner", "partners"),
    ):
        ids[state] = onefold.enqueue(kind, {"number": 3001}, queue=queue).id
        (taken,) = onefold.deliveries.take([queue], worker="web-2:4711", lease=LEASE)
        if state == "awaiting":
            onefold.deliveries.park(taken, ack_timeout=LEASE)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    ids["scheduled"] = onefold.enqueue(
        "send_receipt", {"order": "o-1050"}, queue="email", run_at=tomorrow
    ).id
    receipts = [
        onefold.enqueue(
            "send_receipt",
            {"order": f"o-{number}"},
            queue="email",
            unique_key=f"receipt:o-{number}",
        ).id
        for number in range(1060, 1064)
    ]
    # Ids of one millisecond sort by the hashes of their keys.
    ids["ready"] = max(receipts)


def _declare(onefold: Onefold, clock: Clock) -> None:
    """The handlers of the shop. Their work takes time on the clock of the seed."""

    def work(milliseconds: int, *, error: Exception | None = None) -> None:
        clock.advance(timedelta(milliseconds=milliseconds))
        if error is not None:
            raise error

    @onefold.job(queue="email")
    def send_welcome(customer: int) -> None:
        work(180 + customer)

    @onefold.job(queue="payments")
    def charge_card(run: Run, payload: Payload) -> dict[str, Any]:
        order, amount = payload["order"], payload["amount"]
        run.step("reserve", lambda: {"order": order})
        is_declined = payload.get("card") == "declined"
        error = CardDeclined(f"the bank has declined {amount} EUR") if is_declined else None
        work(640, error=error)
        charged = run.step("charge", lambda: f"ch_{order}")
        return {"charge": charged, "amount": amount}

    @onefold.job
    def sync_inventory(shelf: str) -> None:
        error = ConnectionError("inventory.internal: connection refused")
        work(2400, error=error if shelf == "east" else None)

    @onefold.job(queue="documents")
    def render_invoice(number: int) -> None:
        error = ValueError(f"invoice {number} has no address")
        work(900, error=error if number == 2007 else None)

    # A worker knows them by their declaration.
    del send_welcome, charge_card, sync_inventory, render_invoice
