"""Keys of several surfaces in all states, for the page of keys."""

from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode

from onefold.model.claim import Won
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
