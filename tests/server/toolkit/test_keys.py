"""`/v1/keys` and `/v1/why`: who has a key, whom it has kept away, and an operator's word."""

from typing import Any
from urllib.parse import quote

import pytest

from onefold.claims import Replay, Won
from onefold.web.http import HttpResponse
from onefold.web.idempotency.stored_response import from_stored
from tests.fixtures.served import Api


async def claim(api: Api, key: str, surface: str = "once", scope: str = "import") -> Won:
    answer = await api.onefold.aclaim(scope, key, surface=surface)
    assert isinstance(answer, Won)
    return answer


async def test_keys_are_listed_page_by_page_without_what_is_stored(api: Api) -> None:
    await api.onefold.keys.asettle((await claim(api, "k-1")).claim, {"secret": 1})
    await claim(api, "k-2")
    await claim(api, "k-3", "form")

    first = await api("GET", "/v1/keys?limit=2")
    rest = await api("GET", f"/v1/keys?limit=2&after={quote(first.json['next'])}")
    held = await api("GET", "/v1/keys?state=held&surface=once&scope=import&key=k-2")

    listed = [(key["surface"], key["key"]) for key in (*first.json["items"], *rest.json["items"])]
    assert listed == [("form", "k-3"), ("once", "k-1"), ("once", "k-2")]
    assert rest.json["next"] is None
    assert b"secret" not in first.body + rest.body
    (found,) = held.json["items"]
    assert found["leaseUntil"] == "2020-01-01T00:01:00Z"
    assert (found["state"], found["takeover"], found["settledAt"]) == ("held", "refuse", None)


async def test_one_surface_is_asked_by_its_path(api: Api) -> None:
    await claim(api, "a/b c")
    await claim(api, "a/b c", scope="other")

    path = f"/v1/keys/once/{quote('a/b c', safe='')}"
    both = (await api("GET", path)).json["holders"]
    one = (await api("GET", f"{path}?scope=other&fingerprint=x")).json["holders"]
    none = (await api("GET", "/v1/keys/http/a")).json

    assert [holder["scope"] for holder in both] == ["import", "other"]
    assert [(holder["scope"], holder["matches"]) for holder in one] == [("other", None)]
    assert none == {"key": "a", "holders": []}


async def test_a_key_of_http_is_settled_with_an_answer(api: Api) -> None:
    await claim(api, "k", "http", "alice")
    path = "/v1/keys/http/k/settle"

    settled = await api("POST", path, {"scope": "alice", "status": 201, "body": "{}"})
    unsaid = await api("POST", path, {"scope": "alice", "result": 1})
    misplaced = await api("POST", "/v1/keys/once/k/settle", {"scope": "s", "status": 200})

    assert settled.json == {"settled": True}
    answer = await api.onefold.aclaim("alice", "k", surface="http")
    assert isinstance(answer, Replay)
    stored = from_stored(answer.result)
    assert isinstance(stored, HttpResponse)
    assert (stored.status, stored.body) == (201, b"{}")
    assert unsaid.problem(400, "invalid_input")["field"] == "status"
    assert misplaced.problem(400, "invalid_input")["field"] == "status"


@pytest.mark.parametrize("word", ["release", "settle"])
async def test_the_key_of_a_job_goes_with_its_job(api: Api, word: str) -> None:
    told = await api("POST", f"/v1/keys/job/k/{word}", {})

    assert told.problem(400, "invalid_input")["field"] == "surface"


async def test_the_servers_own_keys_note_whom_they_keep_away(api: Api) -> None:
    for request_id in ("req-1", "req-2"):
        headers: Any = {"idempotency_key": "retry", "x_request_id": request_id}
        await api("POST", "/v1/claims", {"scope": "s", "key": "k"}, **headers)

    (holder,) = (await api("GET", "/v1/keys/http/retry")).json["holders"]

    assert [note["requestId"] for note in holder["suppressed"]["recent"]] == ["req-2"]


async def test_an_answer_that_cannot_be_read_is_not_carried_out_again(api: Api) -> None:
    """Somebody has settled the key of a request with what is no answer."""
    await api.queue("q")
    await api("POST", "/v1/queues/q/pause", idempotency_key="pause-1")
    await api.onefold.keys.aforce_release("v1", "pause-1", surface="http")
    await api.onefold.aclaim("v1", "pause-1", surface="http")
    await api.onefold.keys.aforce_settle("v1", "pause-1", {"any": 1}, surface="http")

    told = await api("POST", "/v1/queues/q/resume", idempotency_key="pause-1")

    told.problem(409, "outcome_unknown")
    assert (await api("GET", "/v1/queues/q")).json["paused"] is True


@pytest.mark.parametrize("media_type", ["a\r\nX-More: 1", "text/plain\n", "\0", "日本", ""])
async def test_the_type_of_an_answer_ends_no_line(api: Api, media_type: str) -> None:
    await claim(api, "k", "http", "alice")
    said = {"scope": "alice", "status": 200, "body": "x", "contentType": media_type}

    told = await api("POST", "/v1/keys/http/k/settle", said)

    assert told.problem(400, "invalid_input")["field"] == "contentType"
