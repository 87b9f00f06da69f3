"""Workers as processes with flags, an environment, files, logs and signals; and `run_worker`."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.cli.conftest import Done, Operate, Run, run_apart
from tests.cli.workers import Process, write_app
from tests.faults.servers import until
from tests.fixtures.place import Place, make_too_new

Start: TypeAlias = Callable[..., Process]

INTERRUPTED = """
import signal
import threading


class Interrupted(logging.Handler):
    writing = threading.Lock()

    def emit(self, record):
        with self.writing:
            if "stopping" in record.getMessage():
                os.kill(os.getpid(), signal.SIGINT)


logging.getLogger("onefold.worker").addHandler(Interrupted())
"""


@pytest.fixture
def start(tmp_path: Path, place: Place) -> Iterator[Start]:
    """Start `onefold worker` with these arguments, beside an application on each database."""
    write_app(tmp_path, place)
    started: list[Process] = []

    def start(*arguments: str, **environment: str) -> Process:
        started.append(Process(tmp_path, *arguments, **environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def sqlite_place(migrated_sqlite_url: str, tmp_path: Path) -> Place:
    """For what no database has a say in."""
    place = Place(migrated_sqlite_url)
    write_app(tmp_path, place)
    return place


def state(place: Place, job_id: str) -> str | None:
    with place.open() as onefold:
        job = onefold.get(job_id)
    return None if job is None else job.state


def enqueue(place: Place, kind: str, **payload: str) -> str:
    with place.open() as onefold:
        return onefold.enqueue(kind, payload).id


def test_a_worker_says_what_it_does_and_is_listed_while_it_runs(
    start: Start, place: Place, operate: Operate
) -> None:
    worker = start(
        "shop:parts.onefold", "--name", "till", "--queues", "email,default:5", "--concurrency", "7"
    )

    worker.wait_for("lands once")
    report = "".join(worker.heard)
    (till,) = until(lambda: listed(operate))
    text = operate("workers").stdout

    assert (place.schema if place.on_postgres else "onefold.db") in report
    assert "Queues: email, default (at most 5)" in report
    assert "Kinds: fail, greet, greet_apart, wait_for" in report
    assert "7 handlers at once" in report
    assert "at least once" in report
    assert (till["name"], till["queues"]) == ("till", ["email", "default"])
    assert (till["concurrency"], till["running"], till["alive"]) == (7, 0, True)
    assert "till" in text
    assert "1 worker alive." in operate("doctor").stdout
    assert worker.stop() == 0
    assert listed(operate) == []


MAIL = """
from onefold import Onefold

onefold = Onefold({url!r}, schema={schema!r})


@onefold.job(queue="email")
def send(user_id: int) -> None: ...


@onefold.cron("0 3 * * *")
@onefold.job(queue="night shift")
def report() -> None: ...
"""


@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=pytest.mark.prove)])
def test_a_worker_without_queues_serves_what_is_declared(
    start: Start, place: Place, tmp_path: Path, processes: str
) -> None:
    (tmp_path / "mail.py").write_text(MAIL.format(url=place.url, schema=place.schema))
    with place.open() as onefold:
        ids = [
            onefold.enqueue("send", {"user_id": 42}, queue="email").id,
            onefold.enqueue("report", queue="night shift").id,
            onefold.enqueue("report").id,
        ]
    worker = start("mail:onefold", "--processes", processes, "--poll", "200ms")

    worker.wait_for("Queues: email, night shift, default.")
    until(lambda: all(state(place, job_id) == "completed" for job_id in ids))
    assert worker.stop() == 0


def listed(operate: Operate) -> list[dict[str, Any]]:
    """The workers; none before the first migration."""
    done = operate("workers", "--json")
    return json.loads(done.stdout) if done.returncode == 0 else []


@pytest.mark.parametrize("kind", ["greet", pytest.param("greet_apart", marks=pytest.mark.prove)])
def test_lines_of_json_tell_what_a_job_did(start: Start, place: Place, kind: str) -> None:
    job_id = enqueue(place, kind, name="ann")
    worker = start("shop:onefold", "--log-format", "json", "--name", "w-1")

    line = worker.wait_for_json("hello ann")
    ended = worker.wait_for_json("was completed")

    assert worker.stop() == 0
    assert line.pop("time")
    assert line == {
        "level": "info",
        "logger": "app",
        "message": "hello ann",
        "job_id": job_id,
        "kind": kind,
        "attempt": 1,
        "worker": "w-1",
    }
    assert (ended["level"], ended["job_id"], ended["state"]) == ("info", job_id, "completed")
    assert state(place, job_id) == "completed"


def test_a_job_that_is_completed_has_no_line_if_the_worker_is_quiet(
    start: Start, place: Place
) -> None:
    done = enqueue(place, "greet", name="bob")
    failed = enqueue(place, "fail")
    quiet = start("shop:onefold", "--quiet", "--poll", "200ms")
    quiet.wait_for(f"Job {failed} (fail) was retried in attempt 1 after ")
    until(lambda: state(place, done) == "completed")
    assert quiet.stop() == 0
    assert "was completed" not in "".join(quiet.heard)


def test_a_job_that_runs_may_end_when_the_worker_is_stopped(
    start: Start, place: Place, tmp_path: Path
) -> None:
    job_id = enqueue(place, "wait_for", path=str(tmp_path / "go"))
    worker = start("shop:onefold")
    worker.wait_for("waiting")

    worker.signal(signal.SIGTERM)
    worker.wait_for("SIGTERM: stopping")
    (tmp_path / "go").touch()

    assert worker.end() == 0
    assert state(place, job_id) == "completed"


@pytest.mark.parametrize(
    ("number", "processes"),
    [
        (signal.SIGINT, "1"),
        *(pytest.param(signal.SIGTERM, count, marks=pytest.mark.prove) for count in "12"),
    ],
    ids=str,
)
def test_a_second_signal_ends_it_now(
    start: Start, place: Place, number: signal.Signals, processes: str
) -> None:
    job_id = enqueue(place, "wait_for", path="never")
    worker = start("shop:onefold", "--processes", processes)
    worker.wait_for("waiting")

    worker.signal(number)
    worker.wait_for(f"onefold.worker: {number.name}: stopping")
    worker.signal(number)

    assert worker.end() == 128 + number
    assert "ending now" in worker.hear_all() or processes == "2"
    assert state(place, job_id) == "running"


def test_a_second_signal_may_interrupt_the_log(start: Start, place: Place, tmp_path: Path) -> None:
    with (tmp_path / "shop.py").open("a") as app:
        app.write(INTERRUPTED)
    enqueue(place, "wait_for", path="never")
    worker = start("shop:onefold")
    worker.wait_for("waiting")

    worker.signal(signal.SIGINT)

    assert worker.end() == 128 + signal.SIGINT
    assert "ending now" in worker.hear_all()


def test_what_does_not_end_in_the_grace_is_handed_back(start: Start, place: Place) -> None:
    job_id = enqueue(place, "wait_for", path="never")
    worker = start("shop:onefold", "--grace", "500ms")
    worker.wait_for("waiting")

    assert worker.stop() == 0
    assert state(place, job_id) == "ready"


def test_a_process_that_is_killed_is_replaced(start: Start, place: Place) -> None:
    worker = start("shop:onefold", "--processes", "2", "--name", "w")
    pids = [pid_in(worker.wait_for("has started (pid")) for _ in range(2)]
    for _ in range(2):
        worker.wait_for("lands once")

    kill(pids[0])
    worker.wait_for("Process 1 was killed by SIGKILL")
    worker.wait_for("Process 1 has started (pid")
    worker.wait_for("Worker w-1 on")
    job_id = enqueue(place, "greet", name="ann")
    worker.wait_for("hello ann")

    assert worker.stop() == 0
    worker.hear_all()
    assert state(place, job_id) == "completed"


@pytest.mark.prove
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "signalled twice"])
def test_supervised_processes_stop_gently_when_the_supervisor_is_killed_or_all_are_signalled(
    start: Start, place: Place, tmp_path: Path, *, is_killed: bool
) -> None:
    """A service manager signals every process of a group."""
    job_id = enqueue(place, "wait_for", path=str(tmp_path / "go"))
    worker = start("shop:onefold", "--processes", "2")
    pids = [pid_in(worker.wait_for("has started (pid")) for _ in range(2)]
    for _ in range(3):
        worker.wait_for("lands once", "waiting")

    if is_killed:
        worker.signal(signal.SIGKILL)
        for _ in range(2):
            worker.wait_for("SIGTERM: stopping")
        (tmp_path / "go").touch()
        assert worker.hear_all().count("has stopped.") == 2
    else:
        for pid in pids:
            kill(pid, signal.SIGTERM)
        worker.signal(signal.SIGTERM)
        worker.wait_for("onefold.supervisor: SIGTERM: stopping")
        (tmp_path / "go").touch()
        assert worker.end() == 0
        worker.hear_all()
    assert state(place, job_id) == "completed"


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        ((), {}, "ONEFOLD_APP"),
        (("nowhere:onefold",), {}, "no module 'nowhere'"),
        (("broken:onefold",), {}, "The module 'broken' cannot be imported: KeyError('SHOP')"),
        *(
            (name, {}, "must be like module:app")
            for name in [("",), ("shop",), ("shop:",), (":a",)]
        ),
        (("shop.nowhere:onefold",), {}, "no module 'shop.nowhere'"),
        (("needy:onefold",), {}, "'needy' cannot be imported: ModuleNotFoundError"),
        (("shop:nothing",), {}, "the module 'shop' has no 'nothing'"),
        (("shop:parts.nothing",), {}, "has no 'nothing'"),
        (("shop:log",), {}, "must be an Onefold object, but is of type Logger"),
        (("shop:onefold", "--lease", "soon"), {}, "--lease must be like 30s"),
        (("shop:onefold", "--queues", "a:0"), {}, "--queues must be a whole number from 1"),
        (("shop:onefold", "--log-format", "xml"), {}, "--log-format must be text or json"),
        (("shop:onefold",), {"ONEFOLD_WORKER_LEASE": "-1"}, "ONEFOLD_WORKER_LEASE must be like"),
        (("nowhere:onefold", "--processes", "2"), {}, "was started with wrong options: stopping"),
    ],
)
@pytest.mark.usefixtures("sqlite_place")
def test_bad_input_is_a_sentence_and_status_2(
    onefold_command: Run,
    tmp_path: Path,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    said: str,
) -> None:
    (tmp_path / "broken.py").write_text("import os\nos.environ['SHOP']\n")
    (tmp_path / "needy.py").write_text("import no_such_module\n")

    done = onefold_command("worker", *arguments, **environment)

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr or "cannot be imported" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [("lease = 'soon'", "tool.onefold.worker.lease"), ("leese = 5", "tool.onefold.worker.leese")],
)
def test_a_slip_in_the_file_names_the_key_and_the_file(
    onefold_command: Run, sqlite_place: Place, tmp_path: Path, line: str, said: str
) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.onefold.worker]\n{line}\n")

    done = onefold_command("worker", "shop:onefold")

    assert done.returncode == 2
    assert done.stderr.startswith(f"onefold: {said} in {path} ")


def test_tables_that_are_missing_or_of_a_later_version_are_a_sentence_and_status_1(
    onefold_command: Run,
    sqlite_place: Place,
    tmp_path: Path,
    postgres_url: str,
    postgres_schema: str,
) -> None:
    make_too_new(sqlite_place.url)
    too_new = onefold_command("worker", "shop:onefold")
    write_app(tmp_path, Place(postgres_url, postgres_schema))
    missing = onefold_command("worker", "shop:onefold")

    assert (too_new.returncode, missing.returncode) == (1, 1)
    assert "Upgrade Onefold here" in too_new.stderr
    assert "onefold migrate" in missing.stderr
    assert "Traceback" not in too_new.stderr + missing.stderr


def pid_in(line: str) -> int:
    found = re.search(r"\(pid (\d+)\)", line)
    assert found is not None, line
    return int(found[1])


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    os.kill(pid, number)


BEGINNING = """
import os, signal, threading
from onefold import Onefold

onefold = Onefold({url!r}, schema={schema!r})
before = signal.getsignal(signal.SIGTERM)
done = threading.Event()

@onefold.job
async def ask_to_stop() -> None:
    print("asked", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

@onefold.job
def finish() -> None:
    done.set()
"""

IN_THE_MAIN_THREAD = """
ask_to_stop.enqueue()
onefold.run_worker(concurrency=1)
print("stopped", signal.getsignal(signal.SIGTERM) is before)
"""

IN_ANOTHER_THREAD = """
finish.enqueue()
threading.Thread(target=onefold.run_worker, daemon=True).start()
print(done.wait(120), signal.getsignal(signal.SIGTERM) is before)
"""


def run(place: Place, folder: Path, program: str) -> Done:
    beginning = BEGINNING.format(url=place.url, schema=place.schema)
    return run_apart(sys.executable, "-c", beginning + program, folder=folder)


def test_a_program_goes_on_when_its_worker_was_stopped(place: Place, tmp_path: Path) -> None:
    done = run(place, tmp_path, IN_THE_MAIN_THREAD)

    assert (done.returncode, done.stdout) == (0, "asked\nstopped True\n"), done.stderr
    with place.open() as onefold:
        assert [job.state for job in onefold.find()] == ["completed"]


def test_in_another_thread_it_leaves_signals_alone(place: Place, tmp_path: Path) -> None:
    done = run(place, tmp_path, IN_ANOTHER_THREAD)

    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr
