import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from onefold.cli.demo.command import _sentence
from onefold.cli.demo.world import Effects
from tests.cli.conftest import ONEFOLD, run_apart

SENTENCE = r"requested (\d+) times · done (\d+) times · lost (\d+) · doubled (\d+)"


def test_every_purchase_is_done_once_with_onefold_and_often_without(tmp_path: Path) -> None:
    done = run_apart(ONEFOLD, "demo", "--count", "32", TMPDIR=str(tmp_path))

    assert (done.returncode, done.stderr) == (0, "")
    ours, plain = ([int(number) for number in each] for each in re.findall(SENTENCE, done.stdout))
    requested = ours[0]
    assert requested > 32
    assert ours[1:] == [32, 0, 0]
    assert plain[0] == requested
    assert plain[3] > 0
    for surface in ("API", "form", "webhook", "job"):
        row = re.search(rf"^{surface} +\d+ +8 +8 +0 +0 ", done.stdout, re.MULTILINE)
        assert row is not None, surface
    assert int(re.search(r"(\d+) workers were killed", done.stdout)[1]) > 0  # type: ignore[index]
    assert "The dashboard: http://127.0.0.1:" in done.stdout
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.prove
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_closed_terminal_end_all_processes_of_the_demo(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = [str(ONEFOLD), "demo", "--count", "10000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as demo:
        assert demo.stdout is not None
        demo.stdout.readline()  # the server is up
        assert processes_with(tmp_path)
        demo.send_signal(number)
        demo.stdout.read()

        assert demo.wait() == 130
    assert processes_with(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def processes_with(folder: Path) -> list[str]:
    """The processes whose environment names a folder."""
    found: list[str] = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"={folder}/onefold-demo-".encode() in environment.read_bytes():
                found.append(environment.parent.name)
    return found


def test_what_is_lost_and_doubled_is_counted_apart() -> None:
    tally = Effects(wanted=10, done=12, different=9) + Effects(wanted=1, done=1, different=1)

    assert (tally.lost, tally.doubled) == (1, 3)
    assert "open 1 " in _sentence("With Onefold", 20, tally, "open").plain
