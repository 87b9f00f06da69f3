import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from onefold.cli.demo.command import DemoOutput
from onefold.cli.demo.processes import PromiseBroken
from tests.cli.conftest import Run


def test_the_demo_tells_a_story_of_facts(onefold_command: Run) -> None:
    done = onefold_command("demo")

    assert (done.returncode, done.stderr) == (0, "")
    story = done.stdout
    facts = re.findall(r"^   ok  (.+)$", story, re.MULTILINE)
    assert len(re.findall(r"process \d+ +new job", story)) == 1
    assert len(re.findall(r"process \d+ +duplicate of", story)) == 5
    assert len(set(re.findall(r"(?:new job|duplicate of) +(\S+)", story))) == 1
    for fact in (
        "one job is new, and 5 answers are duplicates",
        "it ended with SIGKILL",
        "there is no invoice",
        "there is no job either",
        "the key of the killed process was free",
        "there is one invoice",
        "fence 2 after fence 1",
        "its report is rejected: lost",
        "the second delivery finishes: accepted",
        "the publish key still returns the same id",
        "there is no receipt",
        "the job is completed, in attempt ",
        "there is one receipt, of that attempt",
        "its history shows the earlier attempts, whose leases expired",
        "after SIGTERM, the worker stops with status 0",
        "the import ran once",
    ):
        assert any(fact in told for told in facts), fact
    assert f"All {len(facts)} facts were checked." in story


def test_the_story_is_plain_text_outside_a_terminal(onefold_command: Run) -> None:
    story = onefold_command("demo", "--processes", "2").stdout

    assert story.isascii()
    assert "\x1b" not in story


def test_the_demo_keeps_a_file_that_was_named_and_may_use_it_again(
    onefold_command: Run, tmp_path: Path
) -> None:
    for _ in range(2):
        done = onefold_command("demo", "--database", "demo.db", "--processes", "2")
        assert (done.returncode, done.stderr) == (0, "")

    with closing(sqlite3.connect(tmp_path / "demo.db")) as connection:
        invoices = connection.execute("select count(*) from demo_invoice").fetchone()
        receipts = connection.execute("select number from demo_receipt").fetchall()
        jobs = connection.execute("select kind, count(*) from onefold_job group by kind").fetchall()
    assert invoices == (2,)
    assert len(receipts) == 2
    assert dict(jobs) == {"charge": 2, "invoice.email": 2, "stripe.process": 2}


def test_the_demo_leaves_nothing_behind(onefold_command: Run, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()

    done = onefold_command("demo", "--processes", "2", TMPDIR=str(folder))

    assert str(folder) in done.stdout
    assert list(folder.iterdir()) == []


def test_a_fact_that_does_not_hold_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PromiseBroken, match="water is dry"):
        DemoOutput().fact("water is dry", holds=False)

    assert capsys.readouterr().out == ""
