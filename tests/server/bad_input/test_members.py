"""Filters and members that cannot be accepted: a problem that names each, and nothing stored."""

from typing import Any

import pytest

from tests.fixtures.colours import Store
from tests.fixtures.served import Api

FAILURE = {"type": "Declined", "message": "no money"}

QUERIES: dict[str, list[tuple[str, str]]] = {
    "jobs": [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=many", "limit"),
        ("limit=1&limit=2", "limit"),
        ("status=sleeping", "status"),
        ("status=ready&state=dead", "status"),
        ("after=nonsense", "after"),
        ("createdFrom=yesterday", "createdFrom"),
        ("createdFrom=2020-01-01T00:00:00", "createdFrom"),
        ("colour=red", "colour"),
        ("queue=a%00b", "queue"),
        ("queue={acme}payments", "queue"),
        ("newestFirst=maybe", "newestFirst"),
    ],
    "queues/payments/dead": [
        ("limit=0", "limit"),
        ("after=nonsense", "after"),
        ("endedFrom=2020-01-01T00:00:00", "endedFrom"),
        ("kind=a&kind=b", "kind"),
        ("reason=%00", "reason"),
    ],
    "why": [
        ("", "key"),
        ("key=", "key"),
        ("key=k&payload=%7B", "payload"),
        ("key=k&payload=" + "[" * 10_000, "payload"),
        ("key=k&payload=1&fingerprint=x", "fingerprint"),
        ("key=k&surface=a,b", "surface"),
    ],
    "keys": [
        ("state=lost", "state"),
        ("limit=0", "limit"),
        ("after=x", "after"),
        ("colour=red", "colour"),
    ],
}

USUAL: dict[str, dict[str, Any]] = {
    "PUT schedules/nightly": {"cron": "0 2 * * *", "queue": "payments"},
    "POST claims": {"scope": "import", "key": "k"},
    "POST locks": {"name": "stock"},
    "PUT jobs/{job}/steps/charge": {"fence": 1},
}
"""What stands in a body beside what is wrong."""

BODIES: dict[str, list[tuple[Any, str]]] = {
    "PUT queues/new": [
        ({"endpoint": "ftp://example.com"}, "endpoint"),
        ({"endpoint": "http://2130706433/"}, "endpoint"),
        ({"endpoint": "http://localhost/hook"}, "endpoint"),
        ({"maxAttempts": 0}, "maxAttempts"),
        ({"backoff": {"type": "fixed", "base": 1, "factor": 2}}, "backoff.factor"),
        ({"backoff": {"base": 1e300}}, "backoff.base"),
        ({"backoff": {"typ": "fixed"}}, "backoff.typ"),
        ({"rateLimit": "fast"}, "rateLimit"),
        ({"ackTimeoutAction": "drop"}, "ackTimeoutAction"),
        ({"retention": {"completed": -1}}, "retention.completed"),
        ({"signingSecret": "short"}, "signingSecret"),
        ({"previousSecrets": [{"secret": "whsec_" + "A" * 32}]}, "previousSecrets"),
        ({"headers": {"Host": "example.com"}}, "headers"),
        ({"headers": {"X-A": "1\r\nX-B: 2"}}, "headers"),
        ({"colour": "red"}, "colour"),
    ],
    "POST queues/payments/secret": [({"signingSecret": "short"}, "signingSecret")],
    "PUT schedules/nightly": [
        ({"cron": "every day"}, "cron"),
        ({"cron": None}, "cron"),
        ({"queue": "{acme}reports"}, "queue"),
        ({"catchUp": "some"}, "catchUp"),
        ({"catchUpMost": 3}, "catchUpMost"),
        ({"delay": 1e300}, "delay"),
        ({"runAt": "2020-01-01T00:00:00Z"}, "runAt"),
        ({"uniqueFor": 60}, "uniqueFor"),
    ],
    "POST claims": [
        ({"takeover": "maybe"}, "takeover"),
        ({"lease": -1}, "lease"),
        ({"lease": 0}, "lease"),
        ({"lease": 1e30}, "lease"),
        ({"retention": 0}, "retention"),
        ({"key": ""}, "key"),
        ({"key": "\0"}, "key"),
        ({"surface": "a,b"}, "surface"),
        ({"fingerprint": ""}, "fingerprint"),
        ({"colour": "red"}, "colour"),
    ],
    "POST locks": [
        ({"ttl": 0}, "ttl"),
        ({"wait": 21}, "wait"),
        ({"wait": -1}, "wait"),
        ({"name": ""}, "name"),
    ],
    "PUT jobs/{job}/steps/charge": [
        ({"action": "begin", "result": 0}, "result"),
        ({"action": "finish", "unsafe": True}, "unsafe"),
        ({"action": "finish", "error": FAILURE}, "error"),
        ({"action": "begin", "final": True}, "final"),
        ({"action": "fail"}, "error"),
        ({"action": "fail", "error": FAILURE, "final": True, "unknown": True}, "final"),
        ({"action": "begin", "key": "a", "occurrence": 2}, "occurrence"),
        ({"action": "begin", "occurrence": 0}, "occurrence"),
        ({"action": "begin", "attempt": "me"}, "attempt"),
        ({"action": "begin", "fingerprint": ""}, "fingerprint"),
        ({"action": "begin", "key": ""}, "key"),
        ({"action": "jump"}, "action"),
        ({"action": "begin", "fence": None}, "fence"),
    ],
    "POST jobs/{job}/defer": [
        ({}, "retryAfter"),
        ({"retryAfter": -1}, "retryAfter"),
        ({"retryAfter": "60"}, "retryAfter"),
        ({"retryAfter": 1e300}, "retryAfter"),
        ({"retryAfter": 1, "scope": "world"}, "scope"),
    ],
    "POST jobs/{job}/nack": [
        ({"retryable": "no"}, "retryable"),
        ({"reason": 5}, "reason"),
        ({"reason": "a\0b"}, "reason"),
        ({"reason": "x" * 20_000}, "reason"),
    ],
    "POST jobs/{job}/ack": [
        ({"fence": 0}, "fence"),
        ({"fence": 2**63}, "fence"),
        ({"outcome": "fine"}, "outcome"),
    ],
    "POST jobs/{job}/heartbeat": [({"lease": -5}, "lease")],
}


@pytest.mark.parametrize("path", QUERIES)
async def test_a_filter_that_cannot_be_is_refused_by_name(api: Api, path: str) -> None:
    await api.queue()
    for query, field in QUERIES[path]:
        reply = await api("GET", f"/v1/{path}?{query}")
        assert reply.problem(400, "invalid_input")["field"] == field, query


@pytest.mark.parametrize("ask", BODIES)
async def test_what_cannot_be_is_refused_by_the_name_of_its_member(
    api: Api, store: Store, ask: str
) -> None:
    await api.queue()
    await api.publish()
    job = await api.take()

    def stored() -> list[Any]:
        tables = ("job", "claim", "queue", "served_queue", "schedule")
        return [store.place.rows(f"select * from {store.table(table)}") for table in tables]

    before = stored()
    method, path = ask.split()
    for body, field in BODIES[ask]:
        wrong = {**USUAL.get(ask, {}), **body}
        reply = await api(method, f"/v1/{path.format(job=job.id)}", wrong)
        assert reply.problem(400, "invalid_input")["field"] == field, body
    assert stored() == before
