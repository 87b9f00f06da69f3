"""Schedules over HTTP: a job of a queue at every tick."""

import sys
from datetime import timedelta

import pytest

from tests.fixtures.colours import Clock
from tests.fixtures.served import Api

PATH = "/v1/schedules/nightly"
BODY = {"cron": "0 2 * * *", "queue": "reports"}


async def test_a_schedule_is_made_and_shown(api: Api) -> None:
    await api.queue("reports", maxAttempts=3)

    reply = await api("PUT", PATH, BODY)

    assert reply.status == 201
    told = reply.json
    assert (told["name"], told["queue"], told["kind"]) == ("nightly", "reports", "reports")
    assert (told["maxAttempts"], told["payload"], told["tz"]) == (3, {}, "UTC")
    assert (told["nextTick"], told["lastTick"]) == ("2020-01-01T02:00:00Z", None)
    assert (await api("GET", PATH)).json == told
    assert (await api("GET", "/v1/schedules")).json == {"items": [told], "next": None}


async def test_a_page_has_at_most_32_schedules_and_four_mebibytes(api: Api) -> None:
    names = [f"s{number:02}" for number in range(39)]
    for name in names:
        payload = "x" * (1_000_000 if name < "s05" else 1)
        await api.onefold.schedules.asave(name, "@daily", kind="report", payload=payload)

    pages: list[list[str]] = []
    query: str | None = ""
    while query is not None:
        told = (await api("GET", f"/v1/schedules{query}")).json
        pages.append([one["name"] for one in told["items"]])
        query = told["next"] and f"?after={told['next']}"

    assert list(map(len, pages)) == [4, 32, 3]
    assert [name for page in pages for name in page] == names
    (await api("GET", "/v1/schedules?after=%00")).problem(400, "invalid_input")


async def test_its_ticks_are_jobs_of_the_queue(api: Api, clock: Clock) -> None:
    await api.queue("reports", maxAttempts=3, backoff={"type": "fixed", "base": 5})
    await api("PUT", PATH, {**BODY, "payload": {"region": "eu"}})

    clock.advance(timedelta(hours=2))
    await api.onefold.deliveries.atick()

    (job,) = (await api.onefold.afind(queue="reports")).jobs
    assert (job.kind, job.payload, job.max_attempts) == ("reports", {"region": "eu"}, 3)
    assert job.metadata == {"schedule": "nightly"}
    assert (await api("GET", PATH)).json["lastTick"] == "2020-01-01T02:00:00Z"


async def test_a_removed_one_is_gone(api: Api) -> None:
    await api.queue("reports")
    await api("PUT", PATH, BODY)

    assert (await api("DELETE", PATH)).status == 204

    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume")):
        (await api(method, f"{PATH}{path}")).problem(404, "schedule_not_found")


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
async def test_a_queue_must_be_there(api: Api) -> None:
    (await api("PUT", PATH, BODY)).problem(404, "queue_not_found")


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
async def test_a_server_that_cannot_read_cron_says_what_to_install(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.queue("reports")
    monkeypatch.setitem(sys.modules, "cronsim", None)

    told = (await api("PUT", PATH, BODY)).problem(501, "not_installed")
    assert "pip install 'onefold[cron]'" in told["detail"]
