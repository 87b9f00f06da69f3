"""Two tenants who call everything by the same names never meet."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from onefold.server.app import ROUTES
from tests.fixtures.colours import Store
from tests.fixtures.place import Place
from tests.server.events.stream import Stream
from tests.server.tenancy.neighbours import Neighbour, Neighbours, never
from tests.server.tenancy.test_walk import asks


async def test_lists_show_what_is_ones_own(acme: Neighbour, rival: Neighbour) -> None:
    await acme.furnish()
    own = await rival.furnish()

    paths = {
        "/v1/jobs": {own.waiting, own.running, own.dead},
        "/v1/jobs?queue=payments": {own.waiting, own.running, own.dead},
        "/v1/queues/payments/dead": {own.dead},
        "/v1/queues": {"payments"},
        "/v1/schedules": {"nightly"},
    }
    for path, expected in paths.items():
        reply = await rival("GET", path)
        shown = [item.get("id") or item["name"] for item in reply.json["items"]]
        assert sorted(shown) == sorted(expected), path
        assert b"acme" not in reply.body, path
    keys = await rival("GET", "/v1/keys")
    assert {(key["surface"], key["scope"], key["key"]) for key in keys.json["items"]} >= {
        ("lock", "", "ledger"),
        ("once", "import", "k-1"),
        ("publish", "payments", "order-1"),
    }
    assert len(keys.json["items"]) == len({str(key) for key in keys.json["items"]})
    assert b"acme" not in keys.body
    for path in ("/v1/keys?", "/v1/why?key=order-1&"):
        publishes = await rival.does("GET", f"{path}surface=publish&scope=payments")
        (found,) = publishes.get("items") or publishes["holders"]
        assert found["scope"] == "payments"
    why = await rival.does("GET", "/v1/why?key=user-1")
    assert [holder["job"]["id"] for holder in why["holders"]] == [own.waiting]


async def test_an_idempotency_key_in_the_header_is_its_tenants_own(
    neighbours: Neighbours, acme: Neighbour, rival: Neighbour
) -> None:
    wanted = {"scope": "import", "key": "k-1"}

    theirs = await acme("POST", "/v1/claims", wanted, idempotency_key="request-1")
    # Another body would be refused, were it known here.
    own = await rival("POST", "/v1/claims", {**wanted, "lease": 5}, idempotency_key="request-1")
    # And another key of the same tenant is no other caller.
    again = await neighbours.called("acme")(
        "POST", "/v1/claims", wanted, idempotency_key="request-1"
    )

    assert (theirs.status, own.status, again.status) == (201, 201, 201)
    assert theirs.json["id"] != own.json["id"]
    assert again.json == theirs.json


@pytest.mark.parametrize("tenant", ["", "rival"])
async def test_nobody_can_spell_anothers_queue(
    neighbours: Neighbours, acme: Neighbour, tenant: str
) -> None:
    """The engine calls it {acme}payments; over HTTP that is no name."""
    await acme.furnish()
    before, name = neighbours.belongings("acme"), "{acme}payments"
    somebody = neighbours.called(tenant)
    things = never(await somebody.furnish())._replace(queue=quote(name))

    for route in ROUTES:
        if "/v1/queues/{name}" not in route.path:
            continue
        ask = asks(things)[route.name]
        assert (await somebody(route.method, ask.path, ask.body)).status == 400, route.name
    for path in (f"/v1/jobs?queue={quote(name)}", f"/v1/keys?surface=publish&scope={quote(name)}"):
        reply = await somebody("GET", path)
        assert reply.status == 400 or reply.json["items"] == [], path
    schedule = {"cron": "0 3 * * *", "queue": name}
    assert (await somebody("PUT", "/v1/schedules/other", schedule)).status in {400, 404}
    assert neighbours.belongings("acme") == before


async def test_events_are_told_to_whose_they_are(acme: Neighbour, rival: Neighbour) -> None:
    for neighbour in (acme, rival):
        await neighbour.does("PUT", "/v1/queues/payments", {})
    bearer = f"Bearer {rival.bearer}"
    async with Stream(rival.api, "event=jobs.enqueued", authorization=bearer) as stream:
        assert (await stream.piece() or "").startswith("retry: ")

        await acme.publish(1, kind="theirs")
        await rival.publish(1, kind="own")
        told = await stream.event()

    assert told.data["kind"] == "own"
    assert "acme" not in str(told)


async def test_metrics_tell_of_everybody_and_are_for_nobody_in_particular(
    neighbours: Neighbours, acme: Neighbour, rival: Neighbour
) -> None:
    await acme.furnish()

    refused = await rival("GET", "/metrics")
    told = await neighbours.called("")("GET", "/metrics")

    assert refused.problem(403, "forbidden")
    assert told.status == 200
    assert b"onefold_" in told.body


async def test_a_scope_is_asked_for_before_anything_is_looked_up(
    neighbours: Neighbours, acme: Neighbour
) -> None:
    theirs = await acme.furnish()
    publisher = neighbours.called("rival", scopes=["publish"])

    for route in ROUTES:
        if route.scope == "publish" or route.name == "streamEvents":
            continue
        for things in (theirs, never(theirs)):
            ask = asks(things)[route.name]
            reply = await publisher(route.method, ask.path, ask.body)
            assert reply.problem(403, "forbidden")["scope"] == route.scope


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_nobody_waits_for_anothers_transaction(
    store: Store, acme: Neighbour, rival: Neighbour
) -> None:
    """SQLite has one lock for all, and everybody waits for it alike."""
    theirs = await acme.furnish()
    await rival.furnish()
    place = Place(store.url, store.schema)
    calls = acme.api.onefold.tenant("acme")

    def hold() -> Any:
        connection = place.connect()
        connection.execute("begin")
        job = place.table("job")
        connection.execute(f"select 1 from {job} where tenant = 'acme' for update")
        within = calls.within(connection)
        within.enqueue(
            "payments", {}, queue="{acme}payments", unique_key="user-2", idempotency_key="order-2"
        )
        within.claim("import", "k-2")
        return connection

    connection = await asyncio.to_thread(hold)
    try:
        for route in ROUTES:
            if "{id}" in route.path:
                ask = asks(theirs)[route.name]
                reply = await rival(route.method, ask.path, ask.body)
                assert reply.status in {200, 404, 409}, (route.name, reply.body)
        await rival.publish(2, uniqueKey="user-2", idempotencyKey="order-2")
        await rival.does("POST", "/v1/claims", {"scope": "import", "key": "k-2"})
    finally:
        connection.close()
