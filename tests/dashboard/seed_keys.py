"""Beside the jobs of `seed`: keys in all states, a day of statistics, saved queues, workers."""

import math
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import quote, urlencode

from onefold import Onefold
from onefold.model.claim import Won
from onefold.model.ids import new_id
from onefold.model.queue import QueueSettings
from onefold.model.statistics import MINUTE, Tally
from onefold.operations import statistics, workers
from onefold.operations.workers import WorkerRow
from tests.dashboard.seed import HOSTILE, Seeded, in_thread
from tests.fixtures.colours import Clock, Store

ROUTE = "customer-7\nPOST /payments"


def detail(surface: str, scope: str, key: str) -> str:
    """The path of the page of a key."""
    return f"/keys/detail?{urlencode({'surface': surface, 'scope': scope, 'key': key})}"


def seed_keys(store: Store) -> None:
    """Fill a database with keys."""
    in_thread(lambda: _seed_keys(store))


def _seed_keys(store: Store) -> None:
    clock = Clock(datetime.now(UTC) - timedelta(minutes=30))
    past = store.open(clock=clock)
    done = past.claim("charge", "o-1042", lease=timedelta(minutes=1))
    assert isinstance(done, Won)
    clock.advance(timedelta(seconds=3))
    past.keys.settle(done.claim, {"charge": "ch_1042", "amount": 129.9})
    for number in range(3):
        clock.advance(timedelta(seconds=20))
        # As the server notes a claim that is a duplicate.
        past.context.duplicate_log.note(done.claim.key, f"req-{number}-41aa")
    past.claim("charge", "o-1043", lease=timedelta(minutes=1), takeover="refuse")
    past.claim("import", "2026-11", lease=timedelta(minutes=1), takeover="rerun")
    past.claim(ROUTE, "3f1c-77aa", surface="http", lease=timedelta(minutes=1))
    freed = past.claim("charge", "o-1044")
    assert isinstance(freed, Won)
    past.keys.release(freed.claim)
    hostile = past.claim(HOSTILE, HOSTILE, lease=timedelta(minutes=1))
    assert isinstance(hostile, Won)
    past.keys.settle(hostile.claim, {HOSTILE: HOSTILE})
    past.context.duplicate_log.flush()
    now = store.open()
    now.claim("rebuild", "search-index", lease=timedelta(hours=1))
    now.enqueue("send_receipt", {"order": 7}, idempotency_key="publish-7", queue="email")


def pages(seeded: Seeded) -> list[str]:
    """A path of every page. A new page is added here."""
    return [
        "/",
        "/?last=24h",
        "/queues",
        "/queues/email",
        "/queues/nothing",
        "/new-queue",
        "/workers",
        "/jobs",
        "/jobs?kind=nothing",
        "/jobs?id=nonsense",
        *(f"/jobs/{job_id}" for job_id in seeded),
        "/nothing-here",
        "/keys",
        "/keys?key=nothing",
        "/keys?key=charge:o-1042",
        "/keys?surface=job",
        "/keys/detail?surface=job&scope=charge_card&key=charge:o-1042",
        f"/keys/detail?surface=job&scope=import_catalog&key={quote(HOSTILE)}",
        "/dead",
        "/dead?kind=nothing",
        "/dead?from=yesterday",
        "/schedules",
        "/api-keys",
    ]


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def fill_day(onefold: Onefold) -> None:
    """Add the statistics of 24 hours: quiet at night, with one outage two hours ago."""
    now = time.time_ns() // 1000
    last = now - now % MINUTE
    tallies: dict[tuple[int | None, str], Tally] = {}
    for back in range(24 * 60):
        daylight = 1 + math.sin((back + 240) / 1440 * 2 * math.pi)
        wave = 1 + 0.35 * math.sin(back * 1.7) + 0.2 * math.sin(back * 0.37)
        work = int(14 * daylight * wave) + 2
        is_outage = 100 <= back < 130 or back in {4, 5}
        waited = (9_000_000 if is_outage else 130_000) + 2_000 * (back * 37 % 60)
        tally = Tally(
            completed=work // 4 if is_outage else work,
            retried=work // 2 if is_outage else int(back % 7 == 0),
            dead=2 if is_outage and back % 2 else int(back % 173 == 11),
            duplicates=work // 3 + back % 4,
            measured=work,
            waited_total=waited * work,
            waited_longest=waited * 3,
            ran_total=(420_000 + 3_000 * (back * 53 % 90)) * work,
            ran_longest=2_400_000,
            backlog=(40 + back * 7 % 90 if is_outage else back * 11 % 9),
        )
        tallies[last - back * MINUTE, "email"] = tally
    onefold.context.store.transact(lambda sql: statistics.add(sql, tallies))


def save_queues(onefold: Onefold) -> None:
    """Queues with endpoints: a healthy one, a held one and a paused one."""
    onefold.queues.save(
        "payments",
        QueueSettings(
            endpoint="https://shop.example/jobs/payments",
            mode="ack",
            concurrency=4,
            rate_limit="100/m",
            signing_secret=SECRET,
        ),
    )
    onefold.queues.save(
        "partners",
        QueueSettings(endpoint="https://partner.example/hooks", signing_secret=SECRET),
    )
    for _ in range(5):
        onefold.queues.count_failure("partners")
    onefold.queues.hold("partners", after=timedelta(minutes=12), why="circuit")
    onefold.queues.save("documents", QueueSettings(max_attempts=3, concurrency=2))
    onefold.queues.pause("documents")


def save_workers(onefold: Onefold) -> None:
    """Workers, as they describe themselves."""
    for name, host, pid, queues, kinds, concurrency in (
        ("web-1:3120", "web-1", 3120, ("default", "email", "payments"), ("charge", "count"), 10),
        ("web-2:4711", "web-2", 4711, ("reports", "partners"), ("report",), 4),
    ):
        row = WorkerRow(new_id(), name, host, pid, queues, kinds, concurrency)
        onefold.context.store.transact(partial(workers.save, row=row))
