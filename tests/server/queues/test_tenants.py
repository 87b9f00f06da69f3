"""A tenant's names are its own: nobody sees the engine's, nor another tenant's."""

from datetime import timedelta

from onefold import Onefold
from tests.fixtures.served import Api

LEASE = timedelta(minutes=1)


async def key_of(onefold: Onefold, tenant: str) -> str:
    made = await onefold.api_keys.acreate(tenant, scopes=["admin"])
    return f"Bearer {made.text}"


async def test_queues_letters_and_schedules_are_shown_by_the_names_they_were_given(
    api: Api,
) -> None:
    acme, other = await key_of(api.onefold, "acme"), await key_of(api.onefold, "other")
    await api(
        "PUT", "/v1/queues/payments", {"maxAttempts": 1, "concurrency": 3}, authorization=acme
    )
    await api("PUT", "/v1/queues/payments", {}, authorization=other)
    schedule = {"cron": "@daily", "queue": "payments"}
    told = (await api("PUT", "/v1/schedules/nightly", schedule, authorization=acme)).json
    assert (told["queue"], told["kind"]) == ("payments", "payments")
    await api("POST", "/v1/queues/payments/jobs", {"payload": {}}, authorization=acme)
    taken = await api.onefold.deliveries.atake_limited("{acme}payments", worker="w", lease=LEASE)
    await api.onefold.deliveries.abury(taken.jobs, reason="no use")

    (letter,) = (await api("GET", "/v1/queues/payments/dead", authorization=acme)).json["items"]
    (queue,) = (await api("GET", "/v1/queues", authorization=acme)).json["items"]

    assert letter["queue"] == queue["name"] == "payments"
    assert queue["counts"]["dead"] == 1
    assert (await api("GET", "/v1/queues/payments/dead", authorization=other)).json["items"] == []
    (queue,) = (await api("GET", "/v1/queues", authorization=other)).json["items"]
    assert (queue["concurrency"], queue["counts"]["dead"]) == (None, 0)
    assert (await api("GET", "/v1/schedules", authorization=other)).json["items"] == []


async def test_a_pause_is_one_tenant_s(api: Api) -> None:
    acme, other = await key_of(api.onefold, "acme"), await key_of(api.onefold, "other")
    for key in (acme, other):
        await api("PUT", "/v1/queues/payments", {}, authorization=key)

    await api("POST", "/v1/queues/payments/pause", authorization=acme)

    assert (await api("GET", "/v1/queues/payments", authorization=acme)).json["paused"]
    assert not (await api("GET", "/v1/queues/payments", authorization=other)).json["paused"]
