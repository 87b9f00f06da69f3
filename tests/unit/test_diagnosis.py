"""What `onefold doctor` thinks of facts."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onefold.model.diagnosis import (
    GIGABYTE,
    Diagnosis,
    Surroundings,
    clock_finding,
    index_findings,
    postgres_findings,
    sqlite_findings,
    worker_findings,
)
from onefold.model.statistics import WorkerStatus

POSTGRES = {
    "deadlock_timeout": "1000",
    "synchronous_commit": "on",
    "fsync": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "max_connections": "100",
    "connections": "5",
    "standby": "false",
    "transaction": "0 7",
    "dead rows": "10 5",
}
SQLITE = {"journal_mode": "wal"}
SPACE = Surroundings(free_bytes=10 * GIGABYTE)


def wrong(found: list[Diagnosis]) -> list[tuple[str, str]]:
    """What is not ok; each of them says what to do."""
    bad = [finding for finding in found if finding.level != "ok"]
    assert all(finding.fix for finding in bad)
    return [(finding.check, finding.level) for finding in bad]


def test_a_healthy_server_has_only_good_findings() -> None:
    found = list(postgres_findings(POSTGRES, Surroundings(listens=True)))

    assert wrong(found) == []
    checks = ["durability", "locks", "connections", "transactions", "vacuum", "wake-up"]
    assert [finding.check for finding in found] == checks
    # Nor is one trouble that shows no transactions and no table.
    hidden = {"transaction", "dead rows"}
    facts = {name: fact for name, fact in POSTGRES.items() if name not in hidden}
    assert wrong(list(postgres_findings(facts, Surroundings(listens=True)))) == []


@pytest.mark.parametrize(
    ("facts", "finding"),
    [
        ({"fsync": "off"}, ("durability", "problem")),
        ({"synchronous_commit": "off"}, ("durability", "problem")),
        ({"full_page_writes": "off"}, ("durability", "problem")),
        ({"standby": "true"}, ("durability", "problem")),
        ({"deadlock_timeout": "800"}, ("locks", "warning")),
        ({"connections": "80"}, ("connections", "warning")),
        ({"transaction": "301 7"}, ("transactions", "warning")),
        ({"autovacuum": "off"}, ("vacuum", "problem")),
        ({"unvacuumed": "job"}, ("vacuum", "problem")),
        ({"dead rows": "200000 10"}, ("vacuum", "warning")),
    ],
)
def test_a_setting_or_activity_that_hurts_is_found(
    facts: Mapping[str, str], finding: tuple[str, str]
) -> None:
    found = list(postgres_findings({**POSTGRES, **facts}, Surroundings(listens=True)))

    assert wrong(found) == [finding]


@pytest.mark.parametrize(
    ("near", "word"),
    [(Surroundings(pooled=True), "pooler"), (Surroundings(listens=False), "did not arrive")],
)
def test_workers_that_are_not_woken_are_a_warning(near: Surroundings, word: str) -> None:
    *_, last = postgres_findings(POSTGRES, near)

    assert (last.check, last.level) == ("wake-up", "warning")
    assert word in last.message


def test_a_healthy_file_has_only_good_findings() -> None:
    found = list(sqlite_findings(SQLITE, SPACE))

    assert wrong(found) == []
    assert [finding.check for finding in found] == ["file", "durability", "log", "disk"]
    assert list(sqlite_findings(SQLITE, Surroundings())) == found[:-1]


@pytest.mark.parametrize(
    ("facts", "near", "finding"),
    [
        ({"damage": "row 1 missing"}, SPACE, ("file", "problem")),
        ({"journal_mode": "delete"}, SPACE, ("durability", "problem")),
        ({}, Surroundings(free_bytes=GIGABYTE // 2), ("disk", "warning")),
        ({}, Surroundings(free_bytes=1), ("disk", "problem")),
        ({}, Surroundings(free_bytes=10 * GIGABYTE, log_bytes=GIGABYTE), ("log", "warning")),
    ],
)
def test_a_file_in_trouble_is_found(
    facts: Mapping[str, str], near: Surroundings, finding: tuple[str, str]
) -> None:
    assert wrong(list(sqlite_findings({**SQLITE, **facts}, near))) == [finding]


@pytest.mark.parametrize(
    ("seconds", "level", "word"),
    [
        (0.9, "ok", "same"),
        (-0.9, "ok", "same"),
        (2, "warning", "ahead of"),
        (-2, "warning", "behind"),
        (61, "problem", "ahead of"),
    ],
)
def test_clocks_may_differ_by_a_second(seconds: float, level: str, word: str) -> None:
    finding = clock_finding(timedelta(seconds=seconds))

    assert finding.level == level
    assert word in finding.message


def test_an_index_must_exist_and_be_valid() -> None:
    expected = frozenset({"a", "b", "c"})
    missing, invalid = index_findings(expected, {"a": True, "b": False, "more": True}, "onefold")
    (fine,) = index_findings(expected, {"a": True, "b": True, "c": True}, "onefold")

    assert "index c is missing" in missing.message
    assert invalid.fix == 'Run: reindex index concurrently "onefold".b'
    assert (missing.level, invalid.level, fine.level) == ("problem", "problem", "ok")


def running(kinds: tuple[str, ...] | None = ("mail",), *, alive: bool = True) -> WorkerStatus:
    at = datetime(2026, 3, 29, tzinfo=UTC)
    facts: Any = {"host": "h", "pid": 1, "queues": ("mail",), "concurrency": 1, "running": 0}
    return WorkerStatus(name="w", kinds=kinds, started_at=at, seen_at=at, alive=alive, **facts)


@pytest.mark.parametrize(
    ("workers", "unserved", "levels", "text"),
    [
        ([running(), running()], {}, ["ok"], "2 workers alive."),
        ([running(), running(alive=False)], {}, ["warning"], "1 worker alive; 1 vanished"),
        ([], {}, ["warning"], "No worker runs: jobs wait."),
        ([running(alive=False)], {}, ["warning", "warning"], "No worker runs: jobs wait."),
        ([running(None)], {}, ["ok"], "0 workers, 1 push worker: no worker runs for queues"),
        ([running(None)], {"a": 2, "b": 1}, ["warning"], "none takes from a, b: 3 due jobs wait."),
        ([running()], {"b": 1}, ["warning"], "1 worker, and none takes from b: 1 due job waits."),
    ],
)
def test_workers_must_run_and_not_vanish_and_take_all_due_jobs(
    workers: list[WorkerStatus], unserved: dict[str, int], levels: list[str], text: str
) -> None:
    found = list(worker_findings(workers, unserved))

    assert [finding.level for finding in found] == levels
    assert text in found[0].message
    wrong(found)
