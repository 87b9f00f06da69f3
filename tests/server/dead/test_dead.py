"""Dead letters over HTTP: found, sent round again, removed; safe to repeat."""

from typing import Any
from urllib.parse import quote

from tests.fixtures.colours import Clock
from tests.fixtures.served import Api

DEAD = "/v1/queues/payments/dead"


async def bury(api: Api, count: int = 1, *, reason: str = "no use", **members: Any) -> list[str]:
    """Publish jobs and bury them; their ids."""
    ids: list[str] = []
    for _ in range(count):
        ids.append((await api.publish(**members))["id"])
        job = await api.take()
        await api.onefold.deliveries.abury([job], reason=reason)
    return ids


async def letters(api: Api, query: str = "") -> list[str]:
    reply = await api("GET", f"{DEAD}{query}")
    assert reply.status == 200, reply.body
    return [letter["id"] for letter in reply.json["items"]]


async def test_they_are_listed_the_newest_first_a_page_at_a_time(api: Api) -> None:
    await api.queue()
    ids = await bury(api, 3)

    first = (await api("GET", f"{DEAD}?limit=2")).json
    rest = (await api("GET", f"{DEAD}?limit=2&after={first['next']}")).json

    assert [letter["id"] for letter in first["items"]] == ids[:0:-1]
    assert ([letter["id"] for letter in rest["items"]], rest["next"]) == (ids[:1], None)
    letter = first["items"][0]
    assert (letter["state"], letter["reason"], letter["queue"]) == ("dead", "no use", "payments")
    assert letter["payload"] == {"n": 1}


async def test_filters_say_which(api: Api, clock: Clock) -> None:
    await api.queue()
    (plain,) = await bury(api)
    (tagged,) = await bury(api, tags=["import"], kind="load", reason="poison")

    assert await letters(api, "?tag=import") == [tagged]
    assert await letters(api, "?kind=payments") == [plain]
    assert await letters(api, "?reason=poison") == [tagged]
    assert await letters(api, f"?endedBefore={quote(clock().isoformat())}") == []
    assert len(await letters(api, f"?endedFrom={quote(clock().isoformat())}")) == 2


async def test_a_completed_job_only_afresh(api: Api) -> None:
    await api.queue()
    job_id = (await api.publish())["id"]
    await api.onefold.deliveries.afinish([await api.take()])

    (await api("POST", f"/v1/jobs/{job_id}/replay")).problem(409, "wrong_state")

    assert (await api("POST", f"/v1/jobs/{job_id}/replay", {"fresh": True})).json["id"] == job_id


async def test_a_repeat_with_the_same_key_is_given_the_same_answer(api: Api) -> None:
    await api.queue()
    await bury(api, 2)

    first = await api("POST", f"{DEAD}/replay", {}, idempotency_key="again-1")
    await bury(api)
    again = await api("POST", f"{DEAD}/replay", {}, idempotency_key="again-1")

    assert first.json["inserted"] == 2
    assert again.body == first.body
    assert len(await letters(api)) == 1, "what died since then is another request's"


async def test_only_those_of_the_queue_and_of_the_filter(api: Api) -> None:
    await api.queue()
    await api.queue("other")
    await bury(api, 2)
    (tagged,) = await bury(api, tags=["import"])

    assert (await api("POST", "/v1/queues/other/dead/replay")).json["inserted"] == 0
    told = (await api("POST", f"{DEAD}/replay", {"tag": "import"})).json

    assert [item["id"] for item in told["items"]] == [tagged]
    assert len(await letters(api)) == 2


async def test_letters_that_outlive_their_queue_are_still_found(api: Api) -> None:
    await api.queue()
    (letter,) = await bury(api)
    assert (await api("DELETE", "/v1/queues/payments")).status == 204

    assert await letters(api) == [letter]
    assert (await api("POST", f"{DEAD}/replay")).json["inserted"] == 1
