"""Jobs from a shell: enqueue them, and run them now."""

import json
from pathlib import Path

import pytest

from onefold import Onefold
from tests.cli.conftest import Operate, Run, read
from tests.cli.test_operators import MINUTE, bury, states
from tests.fixtures.place import Place


def test_a_job_is_enqueued_with_its_options(operate: Operate, onefold: Onefold) -> None:
    given = read(
        operate(
            "enqueue", "email", '{"to": 42}', "--queue", "mail", "--priority", "-3", "--tag", "vip",
            "--tag", "new", "--max-attempts", "2", "--delay", "2h", "--group-key", "42",
            "--unique-key", "welcome:42", "--unique-for", "1d", "--json",
        )
    )  # fmt: skip

    assert given == {"id": given["id"], "duplicate": False, "state": "scheduled"}
    job = onefold.get(given["id"])
    assert job is not None
    assert (job.kind, job.payload, job.queue, job.priority) == ("email", {"to": 42}, "mail", -3)
    assert (job.tags, job.max_attempts, job.unique_key) == (("vip", "new"), 2, "welcome:42")
    assert job.run_at > job.created_at + 119 * MINUTE


@pytest.mark.parametrize("option", ["--unique-key", "--idempotency-key"])
def test_a_repeated_enqueue_names_the_first_job(
    operate: Operate, onefold: Onefold, option: str
) -> None:
    first = operate("enqueue", "email", option, "k")
    again = operate("enqueue", "email", option, "k")
    job_id = first.stdout.split()[1]

    assert first.stdout == f"Enqueued {job_id} (ready).\n"
    assert again.returncode == 0
    assert again.stdout == f"Not enqueued: the job {job_id} already exists (ready).\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("email", "{to: 42}"), "payload must be JSON"),
        (("email", "--delay", "soon"), "delay must be like 30s"),
        (("email", "--run-at", "2h"), "run_at must be a time like"),
        (("email", "--delay", "1h", "--run-at", "2026-03-29"), "delay"),
        (("email", "--unique-key", "k", "--unique-while", "asleep"), "unique_while"),
        (("email", "--unique-while", "queued"), "unique"),
        (("e*mail",), "kind"),
        ((), "KIND"),
    ],
)
def test_a_job_that_makes_no_sense_is_not_stored(
    operate: Operate, onefold: Onefold, arguments: tuple[str, ...], words: str
) -> None:
    refused = operate("enqueue", *arguments)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert words in refused.stderr
    assert not onefold.find().jobs


def test_a_declared_job_has_its_own_options_and_checks_its_payload(
    onefold_command: Run, sqlite_url: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(
        f"from onefold import Onefold, Unique\nonefold = Onefold({sqlite_url!r})\n"
        "@onefold.job(queue='mail', unique=Unique('to'))\ndef email(to: int) -> None: ...\n"
    )
    onefold_command("migrate", "--app", "shop:onefold")

    done = onefold_command("enqueue", "email", '{"to": 42}', "--app", "shop:onefold", "--json")
    wrong = onefold_command("enqueue", "email", '{"to": "me"}', "--app", "shop:onefold")

    with Place(sqlite_url).open() as onefold:
        job = onefold.get(json.loads(done.stdout)["id"])
    assert job is not None
    assert (job.queue, job.unique_key is not None) == ("mail", True)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "to" in wrong.stderr


def test_a_payload_can_be_piped_in(onefold_command: Run, migrated_sqlite_url: str) -> None:
    where = ("--database", migrated_sqlite_url)

    done = onefold_command("enqueue", "email", "-", "--json", *where, stdin='{"to": [1, 2]}')

    with Place(migrated_sqlite_url).open() as onefold:
        job = onefold.get(json.loads(done.stdout)["id"])
    assert job is not None
    assert job.payload == {"to": [1, 2]}


def test_a_job_that_waits_is_run_now(operate: Operate, place: Place, onefold: Onefold) -> None:
    later = onefold.enqueue("email", delay=MINUTE).id
    (dead,) = bury(onefold, "digest")
    failing = onefold.enqueue("email").id
    (taken,) = onefold.deliveries.take(worker="w", lease=MINUTE)
    onefold.deliveries.retry([taken], error=ValueError("hard"), after=MINUTE)

    assert operate("jobs", "retry", later).stdout == f"{later} is due now.\n"
    assert "due or running already (ready)" in operate("jobs", "retry", later).stdout
    assert read(operate("jobs", "retry", failing, "--json")) == {
        "id": failing, "changed": True, "state": "retrying"
    }  # fmt: skip
    assert operate("jobs", "retry", dead).stdout == f"Replayed {dead}.\n"
    assert states(place, later, failing, dead) == ["ready", "retrying", "ready"]
    assert len(onefold.deliveries.take(worker="w", lease=MINUTE, limit=9)) == 3
