"""What an operator does from a shell: dead letters, queues, schedules and jobs."""

import re
from datetime import timedelta
from typing import Any

import pytest

from onefold import Onefold
from tests.cli.conftest import Operate, read
from tests.fixtures.place import Place

MINUTE = timedelta(minutes=1)
NOBODY = "01980000-0000-7000-8000-000000000000"


def bury(onefold: Onefold, kind: str, count: int = 1, **options: Any) -> list[str]:
    """Dead letters, each by an error of its own."""
    for number in range(count):
        onefold.enqueue(kind, {"number": number}, max_attempts=1, **options)
    taken = onefold.deliveries.take(worker="w", lease=MINUTE, limit=count)
    onefold.deliveries.retry(taken, error=ValueError(f"{kind} is [bold]hard[/bold]"))
    return [job.id for job in taken]


def states(place: Place, *ids: str) -> list[str | None]:
    with place.open() as onefold:
        return [None if (job := onefold.get(job_id)) is None else job.state for job_id in ids]


def test_dead_letters_are_listed_by_filter(operate: Operate, onefold: Onefold) -> None:
    (email,) = bury(onefold, "email", tags=["vip"])
    bury(onefold, "digest", 2)

    text = operate("dead", "list", "--kind", "email", "--ended-from", "1h", "--tag", "vip")
    found = read(operate("dead", "list", "--limit", "2", "--json"))
    rest = read(operate("dead", "list", "--after", found["next"], "--json"))
    none = operate("dead", "list", "--error-type", "KeyError")

    assert email in text.stdout
    assert "ValueError: email is [bold]hard[/bold]" in text.stdout
    assert text.stdout.count("\n") == 2
    assert [job["kind"] for job in (*found["jobs"], *rest["jobs"])] == ["digest", "digest", "email"]
    assert rest["next"] is None
    assert none.stdout == "No dead letters found.\n"


@pytest.mark.parametrize("group", ["apikeys", "dead", "jobs", "keys", "queues", "schedules"])
def test_a_group_lists_by_default(operate: Operate, group: str) -> None:
    assert read(operate(group, "--json")) == read(operate(group, "list", "--json"))
    assert "no" in operate(group).stdout.lower()


def test_a_job_that_waits_says_why_and_its_id_is_never_a_key(
    operate: Operate, onefold: Onefold
) -> None:
    job = onefold.enqueue("email", queue="mail").id
    onefold.enqueue("digest", unique_key=job)
    onefold.queues.pause("mail")
    onefold.enqueue("digest", unique_key=NOBODY)
    sentence = "The queue mail is paused. Its jobs start when it is resumed."

    answer = operate("why", job).stdout
    told = read(operate("why", job, "--json"))
    shown = operate("jobs", "show", job).stdout
    onefold.cancel(job)

    assert answer == f"{job} (email, ready)\n{sentence}\n"
    assert f"waiting       {sentence}\n" in shown
    assert (told["waiting"]["code"], told["waiting"]["facts"]["queue"]) == ("paused", "mail")
    assert "It does not wait: it is cancelled." in operate("why", job).stdout
    assert read(operate("jobs", "show", job, "--json"))["waiting"] is None
    assert "kind digest" in operate("why", job, "--surface", "job").stdout
    assert "kind digest" in operate("why", NOBODY).stdout


def test_jobs_are_listed_by_filter(operate: Operate, onefold: Onefold) -> None:
    (dead,) = bury(onefold, "digest")
    later = onefold.enqueue("email", delay=MINUTE, unique_key="welcome:42", tags=["vip"]).id
    ready = onefold.enqueue("email", {"to": "Ada"}, queue="mail").id
    awaiting = onefold.enqueue("email", queue="pushed").id
    (taken,) = onefold.deliveries.take(["pushed"], worker="w", lease=MINUTE)
    onefold.deliveries.park(taken, ack_timeout=MINUTE)

    def listed(*arguments: str) -> list[str]:
        return [job["id"] for job in read(operate("jobs", *arguments, "--json"))["jobs"]]

    text = operate("jobs")
    page = operate("jobs", "list", "--limit", "2")

    assert text.stdout.splitlines()[0].split() == [
        "id", "kind", "queue", "state", "attempts", "created", "due", "ended", "error"
    ]  # fmt: skip
    assert text.stdout.count("\n") == 5
    assert "There are more: --after " in page.stdout
    # Ids of one millisecond sort by the hashes of their keys.
    assert sorted(listed()) == sorted([awaiting, ready, later, dead])
    assert listed("--state", "awaiting") == [awaiting]
    assert listed("list", "--state", "scheduled") == [later]
    assert listed("--state", "dead", "--error-type", "ValueError") == [dead]
    assert listed("--unique-key", "welcome:42", "--tag", "vip", "--kind", "email") == [later]
    assert listed("--queue", "mail", "--created-from", "1h") == [ready]
    assert listed("--text", "ada") == listed("--id", ready[:8], "--queue", "mail") == [ready]
    assert operate("jobs", "--kind", "nothing").stdout == "No jobs found.\n"
    refused = operate("jobs", "--state", "asleep")
    assert (refused.returncode, "must be one of" in refused.stderr) == (2, True)


def test_a_dead_letter_is_shown_with_its_attempts(operate: Operate, onefold: Onefold) -> None:
    (job_id,) = bury(onefold, "email")
    alive = onefold.enqueue("email").id

    text = operate("dead", "show", job_id)
    shown = read(operate("jobs", "show", job_id, "--json"))
    refused = operate("dead", "show", alive)

    assert "ValueError" in text.stdout
    assert '{"number": 0}' in text.stdout
    assert shown["state"] == "dead"
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["dead"]
    assert shown["steps"] == []
    assert refused.returncode == 1
    assert "a dead letter" in refused.stderr


def test_one_dead_letter_is_replayed_or_dropped_by_its_id(
    operate: Operate, place: Place, onefold: Onefold
) -> None:
    again, gone = bury(onefold, "email", 2)

    replayed = operate("dead", "replay", again)
    dropped = operate("dead", "drop", gone)
    refused = operate("dead", "drop", again)

    assert replayed.stdout == f"Replayed {again}.\n"
    assert dropped.stdout == "Dropped 1.\n"
    assert refused.returncode == 1
    assert states(place, again, gone) == ["ready", None]


def test_many_dead_letters_need_a_word_more(
    operate: Operate, place: Place, onefold: Onefold
) -> None:
    emails, digests = bury(onefold, "email", 2), bury(onefold, "digest", 2)

    asked = operate("dead", "replay", "--kind", "email")
    unsaid = operate("dead", "drop", "--yes")
    both = operate("dead", "drop", emails[0], "--all", "--yes")
    assert {done.returncode for done in (asked, unsaid, both)} == {2}
    assert "This would replay 2 dead letters. Add --yes" in asked.stderr
    assert "--all" in unsaid.stderr
    assert states(place, *emails, *digests) == ["dead"] * 4

    replayed = read(operate("dead", "replay", "--kind", "email", "--yes", "--json"))
    dropped = operate("dead", "drop", "--all", "--yes")

    assert replayed == {"replayed": 2, "skipped": 0}
    assert dropped.stdout == "Dropped 2.\n"
    assert states(place, *emails, *digests) == ["ready", "ready", None, None]


def test_more_dead_letters_than_a_batch_are_replayed_and_dropped(
    operate: Operate, onefold: Onefold
) -> None:
    bury(onefold, "email", 502)

    some = read(operate("dead", "replay", "--all", "--limit", "501", "--yes", "--json"))
    taken = onefold.deliveries.take(worker="w", lease=MINUTE, limit=501)
    onefold.deliveries.bury(taken, reason="again")
    all_but_one = read(operate("dead", "drop", "--all", "--limit", "501", "--yes", "--json"))
    rest = read(operate("dead", "drop", "--all", "--yes", "--json"))

    assert some == {"replayed": 501, "skipped": 0}
    assert (all_but_one, rest) == ({"dropped": 501}, {"dropped": 1})


def test_a_replay_whose_key_is_taken_names_the_holder(operate: Operate, onefold: Onefold) -> None:
    (job_id,) = bury(onefold, "email", unique_key="k")
    holder = onefold.enqueue("email", unique_key="k").id

    done = operate("dead", "replay", job_id)

    assert done.returncode == 0
    assert f"{holder} already exists" in done.stdout


def test_queues_are_listed_paused_and_limited(operate: Operate, onefold: Onefold) -> None:
    onefold.enqueue("email", queue="letters")
    onefold.deliveries.bury(
        onefold.deliveries.take(["letters"], worker="w", lease=MINUTE), reason="old"
    )
    onefold.enqueue("email", queue="mail")
    onefold.enqueue("email", queue="mail", delay=MINUTE)

    assert "paused" in operate("queues", "pause", "mail").stdout
    limited = operate("queues", "limit", "mail", "--rate", "100/m", "--group-concurrency", "2")
    assert "100/m; 2 at once of each group" in limited.stdout
    letters, mail = read(operate("queues", "--json"))
    assert letters["name"] == "letters"
    text = operate("queues").stdout

    assert (mail["name"], mail["paused"], mail["declared"]) == ("mail", True, False)
    counts = mail["counts"]
    assert (counts["ready"], counts["scheduled"], counts["running"]) == (1, 1, 0)
    assert (mail["rate_limit"], mail["group_concurrency"]) == ("100/m", 2)
    assert not {"headers", "signing_secret", "previous_secrets"} & mail.keys()
    assert text == operate("queues", "list").stdout
    assert "mail" in text


@pytest.mark.parametrize("word", ["pause", "resume"])
def test_a_queue_that_is_not_known_is_refused(
    operate: Operate, onefold: Onefold, word: str
) -> None:
    onefold.enqueue("email", queue="mail")

    refused = operate("queues", word, "mial")
    said = " ".join(refused.stderr.split())
    assert refused.returncode
    assert "'mial' is not known" in said
    assert "There are default, mail" in said


def test_limits_of_queues_are_taken_back_and_must_make_sense(
    operate: Operate, onefold: Onefold
) -> None:
    onefold.enqueue("email", queue="mail")
    onefold.queues.pause("mail")

    operate("queues", "limit", "mail", "--ordered")
    resumed = operate("queues", "resume", "mail")
    cleared = operate("queues", "limit", "mail", "--clear")

    assert (resumed.returncode, cleared.returncode) == (0, 0)
    (mail,) = onefold.queues.find()
    assert (mail.paused, mail.ordered, mail.declared) == (False, False, True)

    for arguments in ((), ("--rate", "often"), ("--clear", "--ordered"), ("--concurrency", "0")):
        done = operate("queues", "limit", "mail", *arguments)

        assert done.returncode == 2, arguments
        assert done.stderr.startswith("onefold: ")


def test_schedules_are_listed_paused_and_run(
    operate: Operate, place: Place, onefold: Onefold
) -> None:
    onefold.schedules.save("nightly", "0 3 * * *", kind="digest", tz="Europe/Berlin")

    paused, again = (
        operate("schedules", "pause", "nightly"),
        operate("schedules", "pause", "nightly"),
    )
    (listed,) = read(operate("schedules", "list", "--json"))
    resumed = operate("schedules", "resume", "nightly")
    text = operate("schedules", "list")
    enqueued = read(operate("schedules", "run", "nightly", "--json"))
    unknown = operate("schedules", "run", "weekly")

    assert paused.stdout == "The schedule nightly is paused.\n"
    assert again.stdout == "The schedule nightly was already paused.\n"
    assert (listed["paused"], listed["tz"], listed["kind"]) == (True, "Europe/Berlin", "digest")
    assert resumed.stdout == "The schedule nightly is resumed.\n"
    assert "0 3 * * *" in text.stdout
    assert re.search(r"03:00:00 CES?T", text.stdout)
    assert states(place, enqueued["id"]) == ["ready"]
    assert (unknown.returncode, unknown.stdout) == (1, "")


def test_a_job_is_shown_and_cancelled(operate: Operate, onefold: Onefold) -> None:
    job_id = onefold.enqueue("email", {"size": 10**30}, tags=["a", "b"]).id

    assert read(operate("jobs", "show", job_id, "--json"))["payload"] == {"size": 10**30}
    assert "a, b" in operate("jobs", "show", job_id).stdout
    assert operate("jobs", "cancel", job_id, "--reason", "not wanted").stdout == (
        f"Cancelled {job_id}.\n"
    )
    assert read(operate("jobs", "cancel", job_id, "--json")) == {"id": job_id, "cancelled": False}
    assert "not wanted" in operate("jobs", "show", job_id).stdout
    assert operate("jobs", "show", NOBODY).returncode == 1
    assert operate("jobs", "show", "nobody").returncode == 2


def test_an_operator_sees_one_tenant_at_a_time(operate: Operate, onefold: Onefold) -> None:
    job_id = onefold.tenant("acme").enqueue("email").id

    assert operate("jobs", "show", job_id).returncode == 1
    assert operate("jobs", "show", job_id, "--tenant", "acme").returncode == 0
