"""`/metrics` of a server with several processes: whichever answers, it answers for all."""

import os
import re
import signal
import tempfile
from pathlib import Path

import pytest

from onefold.errors import UsageError
from onefold.server.metrics import FOLDER, counted_together
from tests.fixtures.place import Place
from tests.fixtures.serving import Serving
from tests.kill.workers import until
from tests.server.processes.conftest import Serve

PUBLISHED = re.compile(
    rb'^onefold_http_request_seconds_count\{method="POST",.*status="201"\} (\d+)', re.MULTILINE
)
STORED = re.compile(rb"^onefold_jobs_enqueued_total\{.*\} (\d+)", re.MULTILINE)
DEPTH = re.compile(rb'^onefold_queue_depth\{queue="payments",state="ready"\} (\d+)', re.MULTILINE)
SCRAPES = 8


def test_counts_of_all_processes_add_up_and_outlive_a_death(
    sqlite_place: Place, serve: Serve, tmp_path: Path
) -> None:
    server = serve(sqlite_place, "--processes", "2", "--no-push", TMPDIR=str(tmp_path))
    (folder,) = tmp_path.glob("onefold-metrics-*")
    server.ask("PUT", "/v1/queues/payments", b"{}")
    sent = 0

    def publish() -> bool:
        nonlocal sent
        assert server.ask("POST", "/v1/queues/payments/jobs", b'{"payload": {}}').status == 201
        sent += 1
        return True

    def depths() -> set[bytes]:
        return {line for _ in range(SCRAPES) for line in DEPTH.findall(metrics(server))}

    def is_told() -> None:
        # A request is counted when it has been answered: a moment after its client knows.
        until(lambda: (sent, sent) in scraped(server), "for the last request to be counted")
        assert scraped(server) == {(sent, sent)}

    until(lambda: publish() and len(counting(folder)) == 2, "for both to have been asked")
    is_told()
    # A gauge is nobody's own: it is not added up.
    assert depths() == {str(sent).encode()}

    dead = counting(folder)[0]
    os.kill(dead, signal.SIGKILL)
    until(lambda: is_gone(dead), "for it to be gone, with its connections")
    is_told()
    until(lambda: publish() and len(counting(folder)) == 3, "for another to be asked")
    is_told()

    server.terminate()
    assert server.wait() == 0
    assert not folder.exists()


def test_a_machine_without_a_temporary_folder_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with (
        pytest.raises(UsageError, match="Set TMPDIR to a folder"),
        counted_together(2),
    ):
        pass
    with counted_together(1):
        assert FOLDER not in os.environ


def counting(folder: Path) -> list[int]:
    """The processes that have answered a request, dead ones included."""
    return sorted(int(file.stem.split("_")[1]) for file in folder.glob("histogram_*.db"))


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def scraped(server: Serving) -> set[tuple[int, int]]:
    """Requests and jobs, as several scrapes have them."""
    found: set[tuple[int, int]] = set()
    for _ in range(SCRAPES):
        text = metrics(server)
        requests = sum(map(int, PUBLISHED.findall(text)))
        found.add((requests, sum(map(int, STORED.findall(text)))))
    return found


def metrics(server: Serving) -> bytes:
    told = server.ask("GET", "/metrics")
    assert told.status == 200
    return told.body
