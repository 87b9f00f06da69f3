"""`run_worker`: a worker without a command line, in a program's main thread or in another."""

import sys
from pathlib import Path

from tests.cli.conftest import Done, run_apart
from tests.fixtures.place import Place

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
