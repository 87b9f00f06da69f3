"""A process that is killed while it holds a lock: a real SIGKILL, and what others then see.

`tests/crash` kills inside of claims and `once` too: before every statement.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.fixtures.colours import Store

PATIENCE = timedelta(minutes=2)

PROGRAM = """
import sys
from datetime import timedelta
from onefold import Onefold

url, schema = sys.argv[1:]
with Onefold(url, schema=schema).lock("nightly", ttl=timedelta(milliseconds=700)):
    print("holding", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def victim(store: Store) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock and waits to be killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, store.url, store.schema],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def test_f009_a_lock_of_a_killed_process_is_acquired_by_who_waits_for_it(
    store: Store, victim: subprocess.Popen[str]
) -> None:
    assert victim.stdout is not None
    assert victim.stdout.readline() == "holding\n"
    victim.kill()
    assert victim.wait() == -signal.SIGKILL

    with store.open().lock("nightly", wait=PATIENCE) as lock:
        assert not lock.lost
