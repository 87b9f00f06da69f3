"""What SimpleQ's SDK reads of our answers, as strictly: with our base URL it works unchanged.

It ignores members that it does not know. One that it needs, and that is missing or of another type,
is a failure.
"""

import re
from datetime import timedelta
from typing import Any

from tests.fixtures.colours import Clock
from tests.fixtures.served import Api, Reply

HOUR = timedelta(hours=1)
STATUSES = {"pending", "processing", "awaiting_ack", "completed", "dead"}
OUTCOMES = {"success", "failed", "nacked", "deferred"}
# As JavaScript's Date writes it: milliseconds and Z.
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def is_a(value: Any, *kinds: type) -> bool:
    return type(value) in kinds


def check_job(told: Any) -> None:
    """Every member that its types promise."""
    assert told["status"] in STATUSES
    assert all(is_a(told[name], str) for name in ("id", "queue"))
    assert all(is_a(told[name], int) for name in ("attempts", "maxAttempts", "deferCount"))
    assert is_a(told["payload"], dict)
    assert all(is_a(told[name], str, type(None)) for name in ("idempotencyKey", "lastError"))
    moments = [told["scheduledFor"], told["createdAt"]]
    moments += [] if told["completedAt"] is None else [told["completedAt"]]
    for entry in told["history"]:
        assert entry["status"] in OUTCOMES
        assert is_a(entry["attempt"], int)
        assert is_a(entry["error"], str, type(None))
        assert is_a(entry["webhookStatusCode"], int, type(None))
        moments.append(entry["timestamp"])
    assert all(MOMENT.fullmatch(moment) for moment in moments), moments


def fields_of(reply: Reply) -> list[str]:
    """Those of an error, which is a text or has members with texts."""
    told = reply.json["error"]
    if isinstance(told, str):
        assert told
        return []
    assert all(is_a(text, str) for text in told["formErrors"])
    assert all(is_a(text, str) for texts in told["fieldErrors"].values() for text in texts)
    return list(told["fieldErrors"])


async def test_a_job_is_published_looked_at_and_told_of(api: Api, clock: Clock) -> None:
    keys = api.onefold.api_keys
    admin = (await keys.acreate("acme", scopes=["admin"])).text
    key = (await keys.acreate("acme", scopes=["publish", "work"])).text

    async def ask(method: str, path: str, *body: Any) -> Reply:
        bearer = f"Bearer {admin if method == 'PUT' else key}"
        agent = "simpleq-node/1.4.0"
        return await api(method, path, *body, authorization=bearer, user_agent=agent)

    await ask("PUT", "/v1/queues/payments", {})
    jobs = "/v1/queues/payments/jobs"
    order = {"payload": {"orderId": "9482", "amountCents": 4999}, "idempotencyKey": "order:9482"}
    published = [await ask("POST", jobs, order) for _ in range(2)]
    first, again = [reply.json for reply in published]
    path = f"/v1/jobs/{first['id']}"

    assert [reply.status for reply in published] == [201, 200]
    assert (first["id"], first["status"]) == (again["id"], "pending")
    assert MOMENT.fullmatch(first["createdAt"])
    for word, body in (("defer", {"retryAfter": 0}), ("nack", {"reason": "no"}), ("ack", {})):
        clock.advance(HOUR)
        await api.onefold.deliveries.atake_limited("{acme}payments", worker="w", lease=HOUR)
        check_job((await ask("GET", path)).json)
        for _ in range(2):
            told = (await ask("POST", f"{path}/{word}", body)).json
            assert (told["id"], told["accepted"]) == (first["id"], True)
        check_job((await ask("GET", path)).json)
    job = (await ask("GET", path)).json
    assert (job["status"], job["completedAt"] is None) == ("completed", False)
    assert [entry["status"] for entry in job["history"]] == ["deferred", "nacked", "success"]
    refused = await ask("POST", jobs, {**order, "delay": -1})
    assert (refused.status, fields_of(refused)) == (400, ["delay"])
    assert fields_of(await ask("GET", "/v1/jobs/nobodys")) == []
