"""`/v1/claims`: the five answers, and every word under its fence."""

import base64
from typing import Any

import msgspec
import pytest

from tests.fixtures.served import Api, Reply


async def claim(api: Api, key: str = "k", **members: Any) -> Reply:
    headers: Any = members.pop("headers", {})
    return await api("POST", "/v1/claims", {"scope": "import", "key": key, **members}, **headers)


async def won(api: Api, key: str = "k", **members: Any) -> Any:
    reply = await claim(api, key, **members)
    assert reply.status == 201, reply.body
    return reply.json


async def say(api: Api, held: Any, word: str, body: Any = None, **headers: Any) -> Reply:
    path = f"/v1/claims/{held['id']}/{word}"
    return await api("POST", path, {} if body is None else body, **headers)


async def test_a_key_is_won_and_settled_and_its_result_given_again(api: Api) -> None:
    first = await claim(api)
    settled = await say(api, first.json, "settle", {"result": {"rows": 7}})
    resent = await say(api, first.json, "settle", {"result": {"rows": 7}})
    again = await claim(api)

    assert first.status == 201
    held = first.json
    assert (held["outcome"], held["surface"], held["scope"]) == ("won", "once", "import")
    assert (held["guarantee"], held["resumed"]) == ("at most once", False)
    assert held["leaseUntil"] == "2020-01-01T00:01:00Z"
    assert settled.json == resent.json == {"settled": True}
    assert again.status == 200
    assert (again.json["outcome"], again.json["result"]) == ("replay", {"rows": 7})


async def test_a_claim_that_is_sent_again_is_won_again(api: Api) -> None:
    """The answer was lost on the way; the key must not be held by nobody."""
    first = await claim(api, headers={"idempotency_key": "try-1"})
    again = await claim(api, headers={"idempotency_key": "try-1"})
    other = await claim(api, headers={"idempotency_key": "try-2"})

    assert (first.status, again.status, other.status) == (201, 201, 409)
    assert first.json == again.json
    # Even where nobody remembers the first answer.
    await api.onefold.keys.aerase(key="try-1", surface="http")

    again = await claim(api, headers={"idempotency_key": "try-1"})
    await say(api, again.json, "settle", {"result": 1})
    await api.onefold.keys.aerase(key="try-1", surface="http")
    over = await claim(api, headers={"idempotency_key": "try-1"})

    assert again.json["fence"] == first.json["fence"]
    assert (over.status, over.json["result"]) == (200, 1)


@pytest.mark.parametrize("where", ["body", "header"])
async def test_another_fence_than_the_claims_own_is_refused(api: Api, where: str) -> None:
    held = await won(api)
    body = {"fence": 7} if where == "body" else {}
    headers = {"onefold_fence": "7"} if where == "header" else {}

    told = await say(api, held, "settle", body, **headers)

    assert told.problem(400, "invalid_input")["field"] == "fence"
    right = await say(api, held, "settle", {"fence": held["fence"]})
    assert right.status == 200


def spelled(*parts: object) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(parts)).rstrip(b"=").decode()


OWNER = "0190a1b2-0000-7000-8000-000000000000"


NO_HANDLES = [
    "nonsense",
    "%C3%A9",
    "x" * 5000,
    base64.urlsafe_b64encode(b"\xff\xfe").decode().rstrip("="),
    spelled(),
    spelled("once", "import", "k", OWNER),
    spelled("once", "import", "k", "nobody", 1),
    spelled("once", "import", "", OWNER, 1),
    spelled("once", "import", "k", OWNER, -1),
    spelled("once", "import", "k", OWNER, 2**63),
    spelled("once", "import", "k\0", OWNER, 1),
    spelled("lock", "", "k", OWNER, 1),
]


async def test_what_is_no_id_names_no_claim(api: Api) -> None:
    for handle in NO_HANDLES:
        for word in ("settle", "release", "heartbeat"):
            (await say(api, {"id": handle}, word)).problem(404, "not_found")


@pytest.mark.parametrize("character", ["\x01", '"', "ä", "x"])
async def test_the_longest_keys_have_ids_that_are_understood(api: Api, character: str) -> None:
    longest = character * (512 // len(character.encode()))
    held = await won(api, longest, scope=longest)

    assert (await say(api, held, "settle", {"result": 1})).status == 200


async def test_an_id_that_is_made_up_has_no_word(api: Api) -> None:
    held = await won(api)
    surface, scope, key, owner, fence = msgspec.msgpack.decode(
        base64.urlsafe_b64decode(held["id"] + "=" * (-len(held["id"]) % 4))
    )

    for forged in (
        spelled(surface, scope, key, OWNER, fence),
        spelled(surface, scope, key, owner, 1),
    ):
        (await say(api, {"id": forged}, "settle", {"result": "mine"})).problem(409, "lease_lost")

    (await claim(api)).problem(409, "busy")


async def test_who_was_kept_away_is_noted_with_the_id_of_the_request(api: Api) -> None:
    await won(api)
    await claim(api, headers={"x_request_id": "req-7"})

    (holder,) = (await api.onefold.keys.awhy("k")).holders

    assert holder.suppressed.count == 1
    assert holder.suppressed.recent[0].request_id == "req-7"


@pytest.mark.parametrize("surface", ["publish", "lock", "cron", "step", "form", "http", "webhook"])
async def test_a_surface_that_means_something_to_us_is_not_to_be_had(
    api: Api, surface: str
) -> None:
    """An administrator's request with a key was told a secret, for example."""
    await api.queue("q", endpoint="https://example.com/jobs")
    rotated = await api("POST", "/v1/queues/q/secret", {}, idempotency_key="rotate-1")

    told = await claim(api, "rotate-1", surface=surface, scope="v1")
    settled = await say(api, {"id": spelled(surface, "v1", "rotate-1", OWNER, 1)}, "settle")

    assert rotated.status == 200
    assert told.problem(400, "invalid_input")["field"] == "surface"
    settled.problem(404, "not_found")
