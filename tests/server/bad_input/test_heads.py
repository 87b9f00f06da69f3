"""Paths, queries, methods and headers that cannot be: a problem each, never a crash."""

import logging

import pytest

from tests.fixtures.served import Api

JOBS = "/v1/queues/payments/jobs"
ORDER = b'{"payload": 1}'


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("%", "%"),
        ("%zz", "%"),
        ("pay%2", "%"),
        ("%ff", "UTF-8"),
        ("%c3%28", "UTF-8"),
        ("%00", "contain"),
        ("%7Bacme%7Dpayments", "contain"),
        ("{acme}payments", "contain"),
        (".", "URL"),
        ("%2E%2e", "URL"),
        ("%F0%9F%98%80" * 201, "200"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_name_that_cannot_be_is_refused(api: Api, name: str, why: str, method: str) -> None:
    if method == "POST":
        reply = await api("POST", f"/v1/queues/{name}/jobs", raw=ORDER)
    else:
        reply = await api("GET", f"/v1/queues/{name}")

    told = reply.problem(400, "invalid_input")
    assert why in told["detail"]


@pytest.mark.parametrize(
    "path", ["/v1", "/v2/jobs", "/v1/queues//jobs", "/v1/jobs/", "/v1/queues/a/b/jobs", "//"]
)
async def test_what_leads_nowhere_is_404_and_another_method_405(api: Api, path: str) -> None:
    reply = await api("POST", path, raw=ORDER)

    assert reply.status == 404
    assert reply.headers["content-type"] == "application/problem+json"
    other = await api("PATCH", JOBS, raw=ORDER)
    other.problem(405, "method_not_allowed")
    assert "POST" in other.headers["allow"]


async def test_a_name_may_come_as_it_is_or_encoded(api: Api) -> None:
    """No client should send it bare, and some do."""
    made = await api("PUT", "/v1/queues/" + "zahlungen-für-łódź".encode().decode("latin-1"), {})
    found = await api("GET", "/v1/queues/zahlungen-f%C3%BCr-%C5%82%C3%B3d%C5%BA")

    assert made.status == 201, made.body
    assert found.json["name"] == "zahlungen-für-łódź"


async def test_words_without_end_make_no_counters_without_end(api: Api) -> None:
    for number in range(3):
        await api(f"M{number}", JOBS)
        await api("GET", f"/nowhere/{number}")

    told = (await api("GET", "/metrics")).body.decode()

    lines = [
        line for line in told.splitlines() if line.startswith("onefold_http") and "_count" in line
    ]
    assert sorted(line.partition("{")[2] for line in lines) == [
        'method="GET",route="-",status="404"} 3.0',
        'method="other",route="/v1/queues/{name}/jobs",status="405"} 3.0',
    ]


async def test_the_access_log_has_the_route_of_each_request_and_nothing_of_its_path(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "onefold.access")
    noted = Api(api.onefold, access_log=True)

    reply = await noted("GET", "/v1/keys/form/SECRET?scope=SECRET")
    await noted("POST", "/v1/claims/SECRET/release", {})
    await noted("GET", "/jobs/SECRET")
    await noted("GET", "/v1/key/form/SECRET%0a2026-01-01 INFO forged")

    assert [line.split(" ms ")[0].rpartition(" ")[0] for line in caplog.messages] == [
        "127.0.0.1 GET /v1/keys/{surface}/{key} 200",
        "127.0.0.1 POST /v1/claims/{id}/release 404",
        "127.0.0.1 GET /jobs/{id} 404",
        "127.0.0.1 GET - 404",
    ]
    assert caplog.messages[0].endswith(f" ms anonymous {reply.headers['x-request-id']}")
    assert " ms - " in caplog.messages[-1]


@pytest.mark.parametrize(
    "query",
    ["dry=1", "a=%zz%", "a=%ff", "%00=1", "=", "a", "&".join(["a=1"] * 200), "a=" + "x" * 9999],
)
async def test_a_query_that_nobody_knows_is_refused(api: Api, query: str) -> None:
    await api.queue()

    reply = await api("POST", f"{JOBS}?{query}", raw=ORDER)

    assert reply.status == 400, reply.body
    assert reply.json["code"] == "invalid_input"
    assert len(await api.onefold.afind()) == 0


@pytest.mark.parametrize("keys", [[""], ["x" * 256], ["é"], ["a", "b"]])
async def test_a_header_that_is_no_key_is_refused(api: Api, keys: list[str]) -> None:
    await api.queue()
    headers = [("content-type", "application/json"), *(("idempotency-key", key) for key in keys)]

    reply = await api.send("POST", JOBS, [ORDER], headers)

    reply.problem(400, "key_invalid")
    assert len(await api.onefold.afind()) == 0


@pytest.mark.parametrize("given", ["a b", "é", "x" * 200, "", "\x01"])
async def test_a_request_id_that_is_none_is_replaced_and_noise_does_no_harm(
    api: Api, given: str
) -> None:
    await api.queue()
    headers = [
        ("content-type", "application/json"),
        ("x-request-id", given),
        ("content-length", "many"),
        ("accept", "\xff\xfe" * 500),
        ("cookie", "x" * 100_000),
        ("x-" + "n" * 5_000, ""),
        ("traceparent", "zz"),
    ]

    reply = await api.send("POST", JOBS, [ORDER], headers)

    assert reply.status == 201
    assert reply.headers["x-request-id"] != given
