"""`/v1/jobs/{id}/steps`: `run.step` for a handler that runs elsewhere."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from onefold import LeaseLost
from onefold.effects import delivered_steps
from onefold.effects.delivered_steps import RemoteStep
from onefold.model.job import Job
from tests.fixtures.colours import Clock
from tests.fixtures.served import Api, Reply

MINUTE = timedelta(minutes=1)
FAILURE = {"type": "Declined", "message": "no money"}


async def delivered(api: Api) -> Job:
    """A job that is being delivered."""
    await api.onefold.aenqueue("charge", queue="payments")
    job: Job = await api.take()
    return job


async def again(api: Api, clock: Clock) -> Job:
    """The next delivery of the job, after the first has vanished."""
    clock.advance(2 * MINUTE)
    await api.onefold.deliveries.arescue()
    clock.advance(MINUTE)
    job: Job = await api.take()
    return job


async def end(api: Api, job: Job, how: str) -> None:
    if how == "cancelled":
        await api.onefold.acancel(job.id)
    elif how == "completed":
        await api.onefold.deliveries.afinish([job])
    else:
        await api.onefold.deliveries.aretry([job], after=MINUTE)


async def put(api: Api, job: Job, action: str, name: str = "charge", **members: Any) -> Reply:
    body = {"action": action, "fence": job.fence, **members}
    return await api("PUT", f"/v1/jobs/{job.id}/steps/{name}", body)


async def test_a_step_is_begun_done_and_remembered(api: Api, clock: Clock) -> None:
    job = await delivered(api)

    begun = await put(api, job, "begin")
    finished = await put(api, job, "finish", result={"receipt": 7})
    rerun = await put(api, await again(api, clock), "begin")

    assert begun.status == 201
    told = begun.json
    assert (told["outcome"], told["label"], told["attempts"]) == ("run", "charge", 1)
    assert told["idempotencyKey"] == f"{job.id}:charge"
    assert (finished.status, finished.json["outcome"]) == (200, "finished")
    assert (rerun.status, rerun.json["result"]) == (200, {"receipt": 7})


async def test_a_begin_that_is_sent_again_finds_its_own_and_a_finish_is_heard_once(
    api: Api,
) -> None:
    job, attempt = await delivered(api), str(uuid4())

    first = await put(api, job, "begin", attempt=attempt)
    resent = await put(api, job, "begin", attempt=attempt)
    other = await put(api, job, "begin", attempt=str(uuid4()))

    assert (first.status, resent.status) == (201, 201)
    assert first.json == resent.json
    other.problem(409, "busy")

    finished = await put(api, job, "finish", attempt=attempt, result=1)
    again = await put(api, job, "finish", attempt=attempt, result=1)
    late = await put(api, job, "finish", attempt=str(uuid4()), result=2)

    assert finished.json == again.json
    late.problem(409, "lease_lost")


async def test_a_delivery_that_has_lost_its_job_writes_nothing(api: Api, clock: Clock) -> None:
    old = await delivered(api)
    await put(api, old, "begin")
    new = await again(api, clock)

    words: list[tuple[str, Any]] = [
        ("begin", {}),
        ("finish", {"result": 1}),
        ("fail", {"error": FAILURE}),
    ]
    for action, more in words:
        (await put(api, old, action, **more)).problem(409, "lease_lost")

    assert (await put(api, new, "begin")).json["attempts"] == 2


@pytest.mark.parametrize("ends", ["cancelled", "completed", "queued again"])
async def test_after_its_delivery_has_ended_nothing_is_stored(api: Api, ends: str) -> None:
    job, attempt = await delivered(api), str(uuid4())
    await put(api, job, "begin", attempt=attempt)
    await put(api, job, "begin", "told", attempt=attempt)
    told = await put(api, job, "finish", "told", attempt=attempt, result=1)
    await put(api, job, "begin", "lost", attempt=attempt, unsafe=True)
    lost = await put(api, job, "fail", "lost", attempt=attempt, error=FAILURE)
    await end(api, job, ends)

    words: list[tuple[str, str, Any]] = [
        ("finish", "charge", {"result": 1}),
        ("fail", "charge", {"error": FAILURE}),
        ("fail", "lost", {"error": {"type": "Other"}}),
        ("fail", "lost", {"error": FAILURE, "unknown": False}),
        ("finish", "value", {"result": 1}),
        ("begin", "next", {}),
    ]
    for action, name, more in words:
        (await put(api, job, action, name, attempt=attempt, **more)).problem(409, "lease_lost")

    # Only its answer was lost.
    assert (await put(api, job, "finish", "told", attempt=attempt, result=1)).json == told.json
    resent = await put(api, job, "fail", "lost", attempt=attempt, error=FAILURE)
    assert resent.json == lost.json
    states = {step.label: step.state for step in await api.onefold.deliveries.asteps(job.id)}
    charged = "retrying" if ends == "queued again" else "failed"
    assert states == {"charge": charged, "told": "finished", "lost": "unknown"}


@pytest.mark.parametrize("ends", ["cancelled", "completed", "queued again", "taken over"])
@pytest.mark.parametrize("action", ["begin", "finish", "fail", "finish at once"])
async def test_a_delivery_that_ends_between_the_read_and_the_write_of_a_step_writes_nothing(
    api: Api, clock: Clock, ends: str, action: str
) -> None:
    job, attempt = await delivered(api), str(uuid4())
    runtime = api.onefold.context.runtime
    if action in ("finish", "fail"):
        await put(api, job, "begin", attempt=attempt)
    before = await api.onefold.deliveries.asteps(job.id)
    step = await runtime.arun(
        delivered_steps.find(
            RemoteStep(
                tenant=job.tenant, job_id=job.id, fence=job.fence, name="charge", attempt=attempt
            )
        )
    )
    if ends == "taken over":
        await again(api, clock)
    else:
        await end(api, job, ends)

    procedure: Any = step.begin(takeover="rerun")
    if action.startswith("finish"):
        procedure = step.finish(1)
    elif action == "fail":
        procedure = step.fail(FAILURE, final=True, unknown=None)
    with pytest.raises(LeaseLost):
        await runtime.arun(procedure)

    after = await api.onefold.deliveries.asteps(job.id)
    assert [(one.label, one.result) for one in after] == [(one.label, None) for one in before]
    over = ends in ("cancelled", "completed")
    assert {one.state for one in after} <= ({"failed"} if over else {"running", "retrying"})


async def test_changed_arguments_are_refused(api: Api) -> None:
    job = await delivered(api)
    await put(api, job, "begin", fingerprint="a")

    words: list[tuple[str, Any]] = [("begin", {}), ("finish", {"result": 1})]
    for action, more in words:
        (await put(api, job, action, fingerprint="b", **more)).problem(422, "key_reused")
    await put(api, job, "finish", fingerprint="a")
    (await put(api, job, "begin", fingerprint="b")).problem(422, "key_reused")


async def test_a_step_that_failed_for_good_is_not(api: Api) -> None:
    job = await delivered(api)
    await put(api, job, "begin")

    failed = await put(api, job, "fail", error=FAILURE, final=True)
    resent = await put(api, job, "fail", error=FAILURE, final=True)
    begun = await put(api, job, "begin")
    finished = await put(api, job, "finish", result=1)

    assert failed.json == resent.json
    assert failed.json["outcome"] == "failed"
    told = begun.problem(409, "step_failed")
    assert (told["step"], told["errorType"], told["reason"]) == ("charge", *FAILURE.values())
    finished.problem(409, "lease_lost")
    # Nor does one that is done fail any more.
    await put(api, job, "finish", "done", result=1)
    (await put(api, job, "fail", "done", error=FAILURE)).problem(409, "lease_lost")


async def test_steps_of_one_name_are_told_apart_by_key_or_place(api: Api) -> None:
    job = await delivered(api)
    places: list[Any] = [{}, {"occurrence": 2}, {"key": "o-7"}]
    for number, more in enumerate(places, 1):
        await put(api, job, "begin", **more)
        finished = await put(api, job, "finish", result=number, **more)
        assert finished.json["result"] == number

    listed = (await api("GET", f"/v1/jobs/{job.id}/steps")).json["items"]
    keyed = await api("GET", f"/v1/jobs/{job.id}/steps/charge?key=o-7")
    second = await api("GET", f"/v1/jobs/{job.id}/steps/charge?occurrence=2")

    assert [step["label"] for step in listed] == ["charge", "charge#2", "charge[o-7]"]
    for more, label in zip(places, ("sent", "sent#2", "sent[o-7]"), strict=True):
        failed = await put(api, job, "fail", "sent", error=FAILURE, **more)
        assert failed.json["label"] == label
    assert (keyed.json["result"], second.json["result"]) == (3, 2)


async def test_the_steps_of_a_job_have_pages(api: Api) -> None:
    job = await delivered(api)
    text = "é" * 500_000
    for number in range(40):
        result = text if number >= 35 else number
        assert (await put(api, job, "finish", f"s{number:02}", result=result)).status == 200
    pages: list[list[str]] = []
    after: str | None = ""
    while after is not None:
        page = (await api("GET", f"/v1/jobs/{job.id}/steps{after and f'?after={after}'}")).json
        pages.append([step["name"] for step in page["items"]])
        after = page["next"]
    last = await api("GET", f"/v1/jobs/{job.id}/steps/s39")

    assert list(map(len, pages)) == [32, 7, 1]
    assert [name for page in pages for name in page] == [f"s{number:02}" for number in range(40)]
    assert last.json["result"] == text
    for wrong in ("x", "1", "²:s", f"{10**30}:s", "%00"):
        (await api("GET", f"/v1/jobs/{job.id}/steps?after={wrong}")).problem(400, "invalid_input")


async def test_a_fresh_replay_does_everything_anew(api: Api) -> None:
    job = await delivered(api)
    await put(api, job, "finish", result=1)
    await api.onefold.acancel(job.id)
    await api.onefold.areplay(job.id, fresh=True)
    fresh: Job = await api.take()

    begun = await put(api, fresh, "begin")
    shown = await api("GET", f"/v1/jobs/{job.id}/steps/charge")

    assert begun.status == 201
    assert begun.json["idempotencyKey"] == f"{job.id}.1:charge"
    assert (shown.json["state"], shown.json["generation"]) == ("running", 1)


async def test_a_job_that_is_not_there_has_no_steps(api: Api) -> None:
    missing = f"/v1/jobs/{uuid4()}/steps"

    (await api("GET", missing)).problem(404, "job_not_found")
    (await api("GET", f"{missing}/charge")).problem(404, "job_not_found")
    body = {"action": "begin", "fence": 1}
    (await api("PUT", f"{missing}/charge", body)).problem(404, "job_not_found")
    job = await delivered(api)
    (await api("GET", f"/v1/jobs/{job.id}/steps/charge")).problem(404, "not_found")
    assert (await api("GET", f"/v1/jobs/{job.id}/steps")).json == {"items": [], "next": None}
