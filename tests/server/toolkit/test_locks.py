"""`/v1/locks`: a lease on a name, and a fence that grows."""

import asyncio
from typing import Any

import pytest

from tests.fixtures.colours import Store
from tests.fixtures.served import Api, Reply


async def lock(api: Api, name: str = "stock", **members: Any) -> Reply:
    headers: Any = members.pop("headers", {})
    return await api("POST", "/v1/locks", {"name": name, **members}, **headers)


async def held(api: Api, name: str = "stock", **members: Any) -> Any:
    reply = await lock(api, name, **members)
    assert reply.status == 201, reply.body
    return reply.json


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_lock_that_is_given_back_is_free(api: Api, method: str) -> None:
    mine = await held(api)
    path = f"/v1/locks/{mine['id']}"

    released = await api(method, f"{path}/release" if method == "POST" else path)
    again = await api(method, f"{path}/release" if method == "POST" else path)

    assert (released.json, again.json) == ({"released": True}, {"released": False})
    assert (await held(api))["fence"] > mine["fence"]


async def test_who_waits_is_given_it_when_it_is_free(store: Store) -> None:
    api = Api(store.open())
    mine = await held(api)

    waiting = asyncio.create_task(lock(api, wait=15))
    await asyncio.sleep(0)
    await api("DELETE", f"/v1/locks/{mine['id']}")

    assert (await waiting).status == 201


async def test_a_request_that_is_sent_again_has_the_lock(api: Api) -> None:
    first = await held(api, headers={"idempotency_key": "try-1"})
    await api.onefold.keys.aerase(key="try-1", surface="http")
    again = await held(api, headers={"idempotency_key": "try-1"})

    assert first["fence"] == again["fence"]


async def test_a_claim_is_no_lock(api: Api) -> None:
    claim = await api("POST", "/v1/claims", {"scope": "s", "key": "k"})

    for path in ("release", "heartbeat"):
        (await api("POST", f"/v1/locks/{claim.json['id']}/{path}", {})).problem(404, "not_found")
