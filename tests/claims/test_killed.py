"""A process that is killed while it holds a lock: a real SIGKILL, and what others then see.

`tests/crash` kills inside of claims and `once` too: before every statement.
"""

from datetime import timedelta

from tests.faults.callers import kill
from tests.fixtures.colours import Store

PATIENCE = timedelta(minutes=2)

HOLD_A_LOCK = """
    import sys
    from datetime import timedelta
    from onefold import Onefold

    url, schema = sys.argv[1:]
    with Onefold(url, schema=schema).lock("nightly", ttl=timedelta(milliseconds=700)):
        print("ready", flush=True)
        sys.stdin.read()
"""


def test_f009_a_lock_of_a_killed_process_is_acquired_by_who_waits_for_it(store: Store) -> None:
    kill(HOLD_A_LOCK, store.url, store.schema)

    with store.open().lock("nightly", wait=PATIENCE) as lock:
        assert not lock.lost
