"""Jobs that run in processes of their own: found there by their names."""

import ctypes
import os
import signal
import sys
import threading
from datetime import timedelta
from typing import Annotated

from onefold import Onefold, Payload, Run

SECOND = timedelta(seconds=1)

onefold = Onefold(
    os.environ.get("ONEFOLD_TEST_URL", "sqlite:///unused.db"),
    schema=os.environ.get("ONEFOLD_TEST_SCHEMA", "onefold"),
)


@onefold.job(isolation="process", store_result=True)
def pid() -> int:
    return os.getpid()


@onefold.job(isolation="process", max_attempts=1)
def crash() -> None:
    ctypes.string_at(0)


@onefold.job(isolation="process", max_attempts=1)
def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@onefold.job(isolation="process", max_attempts=1)
def leave() -> None:
    os._exit(7)


@onefold.job(isolation="process", max_attempts=1)
def fail() -> None:
    sys.exit("no")


@onefold.job(isolation="process", max_attempts=1, timeout=timedelta(milliseconds=500))
def hang() -> None:
    threading.Event().wait()


@onefold.job(isolation="process", max_attempts=3, timeout=timedelta(milliseconds=200))
def hurry() -> None:
    """Less time than a process needs to start; more than one attempt, for machines in a sweat."""


@onefold.job(isolation="process")
def write(run: Run, table: str) -> None:
    with run.transaction() as tx:
        tx.execute(f"insert into {table} (job_id) values ('{run.id}')")


@onefold.job(isolation="process", store_result=True, max_attempts=1)
def whole(events: Annotated[list[int], Payload]) -> int:
    return sum(events)
