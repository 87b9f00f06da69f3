"""Whom keys have kept away: noted after the answer, folded by a chore, swept with the claim."""

import logging
import os
import subprocess
import sys
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from onefold import NewJob, Onefold
from onefold.app import duplicate_log
from onefold.model.claim import ClaimKey
from tests.fixtures.colours import Clock, Coloured
from tests.fixtures.patience import HANG
from tests.fixtures.place import Place
from tests.race.waiting import until

HOUR = timedelta(hours=1)
KEY = ClaimKey("", "http", "alice", "k")


def note(onefold: Onefold, request_id: str | None = None, key: ClaimKey = KEY) -> None:
    onefold.context.duplicate_log.note(key, request_id)  # pyright: ignore[reportPrivateUsage]


async def noted(onefold: Coloured) -> list[str | None]:
    (holder,) = (await onefold.keys.why("k")).holders
    assert holder.suppressed.count == len(holder.suppressed.recent)
    return [one.request_id for one in holder.suppressed.recent]


async def test_notes_are_counted_with_their_times(onefold: Coloured, clock: Clock) -> None:
    await onefold.claim("alice", "k", surface="http")
    first = clock.now
    note(onefold.target, "req-1")
    clock.advance(HOUR)
    note(onefold.target)
    note(onefold.target, "a\0b" + "x" * 1000)
    last = clock.now
    # Written later than they happened.
    clock.advance(HOUR)

    (holder,) = (await onefold.keys.why("k")).holders

    told = holder.suppressed
    assert (told.count, told.first_at, told.last_at) == (3, first, last)
    cut = "ab" + "x" * 197
    assert {one.request_id for one in told.recent[:2]} == {None, cut}, "to what can be stored"
    assert told.recent[2].request_id == "req-1"


async def test_notes_go_with_the_claim(onefold: Coloured, clock: Clock) -> None:
    answer = await onefold.claim("alice", "k", surface="http", retention=HOUR)
    await onefold.keys.settle(answer.claim)
    note(onefold.target, "req-1")
    await onefold.deliveries.fold()
    note(onefold.target, "req-2")
    assert len(await noted(onefold)) == 2
    clock.advance(HOUR)

    await onefold.deliveries.sweep()
    await onefold.claim("alice", "k", surface="http")

    assert await noted(onefold) == []


@pytest.mark.parametrize("how", ["key", "scope", "tenant"])
async def test_an_erase_takes_the_notes_along(onefold: Coloured, how: str) -> None:
    await onefold.claim("alice", "k", surface="http")
    note(onefold.target, "req-1")
    assert await noted(onefold) == ["req-1"]

    if how == "tenant":
        await onefold.keys.erase(tenant="")
    else:
        await onefold.keys.erase(**({"key": "k"} if how == "key" else {"scope": "alice"}))
    await onefold.claim("alice", "k", surface="http")

    assert await noted(onefold) == []


async def test_an_erase_takes_the_notes_along_that_are_not_written_yet(
    onefold: Coloured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicate_log, "PAUSE", 60)
    await onefold.claim("alice", "k", surface="http")
    note(onefold.target, "req-1")

    await onefold.keys.erase(tenant="")
    onefold.target.context.duplicate_log.flush()  # pyright: ignore[reportPrivateUsage]

    assert await onefold.deliveries.fold() == 0


async def test_a_key_that_is_taken_over_keeps_its_notes(onefold: Coloured, clock: Clock) -> None:
    for request_id in ("req-1", "req-2"):
        await onefold.claim("alice", "k", surface="http", takeover="rerun", lease=HOUR)
        note(onefold.target, request_id)
        clock.advance(HOUR)

    assert sorted(await noted(onefold), key=str) == ["req-1", "req-2"]


def test_notes_are_written_by_themselves(place: Place) -> None:
    with place.open() as onefold, place.open() as other:
        onefold.claim("alice", "k", surface="http")
        others = set(threading.enumerate())
        note(onefold, "req-1")
        writers = [one for one in threading.enumerate() if one.name == "onefold-notes"]
        writers = [one for one in writers if one not in others]
        for writer in writers:
            writer.join(HANG)

        (holder,) = other.keys.why("k").holders

    assert writers
    assert holder.suppressed.count == 1


SCRIPT = """
import asyncio, sys
from datetime import timedelta
from onefold.app import duplicate_log
from tests.fixtures.place import Place

url, schema, locks = sys.argv[1:]
place = Place(url, schema)
onefold = place.open(busy_timeout=timedelta(hours=1))

async def enqueue():
    for _ in range(61):
        await onefold.aenqueue("email", unique_key="k")

# These two start no thread at the end of a process, and so no async connection.
if place.on_postgres and sys.version_info[:3] not in ((3, 12, 0), (3, 12, 1)):
    asyncio.run(enqueue())
else:
    for _ in range(61):
        onefold.enqueue("email", unique_key="k")
if locks:
    other = place.connect()
    other.execute(place.begin)
    if place.on_postgres:
        other.execute(f"lock table {place.table('duplicate')}")
else:
    duplicate_log.LAST = 3600
"""


@pytest.mark.parametrize("locks", ["", "locks"])
def test_a_process_that_ends_without_a_close_writes_its_notes_but_does_not_wait_for_a_lock(
    place: Place, locks: str
) -> None:
    subprocess.run(
        [sys.executable, "-c", SCRIPT, place.url, place.schema, locks], check=True, timeout=HANG
    )

    with place.open() as onefold:
        (job,) = onefold.find()
        counts = {onefold.statistics.read(last=HOUR).total.duplicates}
        counts.add(onefold.keys.duplicates(job.id).count)
    assert counts == {60} or locks


def test_a_close_waits_for_what_is_being_written(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicate_log, "PAUSE", 0)
    with place.open() as onefold:
        onefold.claim("alice", "k", surface="http")
        with place.transaction() as other:
            if place.on_postgres:
                other.execute(f"lock table {place.table('duplicate')} in access exclusive mode")
            note(onefold, "req-1")
            taken = onefold.context.duplicate_log  # pyright: ignore[reportPrivateUsage]
            until(lambda: not taken._waiting, "the note is being written")  # pyright: ignore[reportPrivateUsage]
            closing = threading.Thread(target=onefold.close)
            closing.start()
        closing.join(HANG)

        with place.open() as another:
            assert another.keys.why("k").holders[0].suppressed.count == 1


def test_a_flood_is_bounded(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(duplicate_log, "MOST", 5)
    monkeypatch.setattr(duplicate_log, "PAUSE", 60)
    with caplog.at_level(logging.WARNING, "onefold"), place.open() as onefold:
        onefold.claim("alice", "k", surface="http")
        for number in range(20):
            note(onefold, f"req-{number}")

        (holder,) = onefold.keys.why("k").holders

    assert holder.suppressed.count == 5
    assert "15 suppressed duplicates are not counted" in caplog.text


async def test_the_duplicates_of_jobs_are_noted_behind_with_the_time_of_the_answer(
    onefold: Coloured, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicate_log, "PAUSE", 60)
    holder = await onefold.enqueue("email", unique_key="k")
    at = clock.now
    await onefold.enqueue("email", unique_key="k", request_id="req-1")
    await onefold.enqueue_many([NewJob("email", unique_key="k", request_id="req-2")])
    waiting = onefold.target.context.duplicate_log._waiting  # pyright: ignore[reportPrivateUsage]
    assert [one.request_id for _, some in waiting for one in some] == ["req-1", "req-2"]
    clock.advance(HOUR)

    found = await onefold.keys.duplicates(holder.id)

    assert (found.count, found.first_at, found.last_at) == (2, at, at)


def test_in_a_callers_transaction_a_rollback_takes_the_note_back(place: Place) -> None:
    with place.open() as onefold:
        holder = onefold.enqueue("email", unique_key="k")
        with place.transaction() as connection:
            onefold.within(connection).enqueue("email", unique_key="k")
            connection.rollback()
            connection.execute(place.begin)
        assert onefold.keys.duplicates(holder.id).count == 0
        with place.transaction() as connection:
            onefold.within(connection).enqueue("email", unique_key="k")
            assert onefold.within(connection).keys.duplicates(holder.id).count == 1
        assert onefold.keys.duplicates(holder.id).count == 1


def test_a_job_that_is_deleted_meanwhile_leaves_no_note_behind(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicate_log, "PAUSE", 60)
    with place.open() as onefold:
        holder = onefold.enqueue("email", unique_key="k")
        onefold.enqueue("email", unique_key="k")
        onefold.delete(holder.id)
        onefold.context.duplicate_log.flush()  # pyright: ignore[reportPrivateUsage]

        assert onefold.deliveries.fold() == 0


def test_who_asks_in_a_flood_waits_for_what_was_there_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duplicate_log, "BATCH", 2)
    monkeypatch.setattr(duplicate_log, "PAUSE", 60)
    written = 0

    class Flooded:
        """Slower than they come: while it writes some, there are as many again."""

        def transact(self, _: object) -> None:
            nonlocal written
            written += 1
            if written < 50:
                notes.note(KEY)
                notes.note(KEY)

    runtime: Any = SimpleNamespace(store=SimpleNamespace(database=Flooded()))
    notes = duplicate_log.DuplicateLog(runtime, lambda: 0)
    for _ in range(4):
        notes.note(KEY)

    notes.flush()

    assert written == 2


def test_tables_that_are_gone_are_waited_for_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(duplicate_log, "BATCH", 1)
    monkeypatch.setattr(duplicate_log, "PAUSE", 60)
    with caplog.at_level(logging.WARNING, "onefold"), place.open() as onefold:
        with place.connection() as other:
            other.execute(f"drop table {place.table('duplicate')}")
        for _ in range(3):
            note(onefold)

    assert caplog.text.count("could not be noted") == 1


def test_a_signal_handler_may_flush_in_the_middle_of_a_flush(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duplicate_log, "PAUSE", 60)
    written = 0

    class Interrupted:
        """While it writes, a signal comes, and what handles it closes Onefold."""

        def transact(self, _: object) -> None:
            nonlocal written
            notes.flush()
            written += 1

    runtime: Any = SimpleNamespace(store=SimpleNamespace(database=Interrupted()))
    notes = duplicate_log.DuplicateLog(runtime, lambda: 0)
    notes.note(KEY)
    flushing = threading.Thread(target=notes.flush, daemon=True)
    flushing.start()
    flushing.join(HANG)

    assert written == 1


def test_a_forked_child_has_notes_of_its_own(place: Place) -> None:
    with place.open() as onefold:
        onefold.claim("alice", "k", surface="http")
        note(onefold, "parent")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                note(onefold, "child")
                waiting = onefold.context.duplicate_log._waiting  # pyright: ignore[reportPrivateUsage]
                ids = [one.request_id for _, some in waiting for one in some]
                status = 0 if ids == ["child"] else 1
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

        assert onefold.keys.why("k").holders[0].suppressed.count == 1
