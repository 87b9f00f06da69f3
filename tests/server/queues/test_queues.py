"""Queues over HTTP: made, changed, looked at, paused, removed."""

import shlex

import pytest

from tests.fixtures.colours import Clock, Store
from tests.fixtures.served import Api


async def test_a_refused_address_names_the_flag_that_allows_it(api: Api) -> None:
    reply = await api("PUT", "/v1/queues/payments", {"endpoint": "http://127.0.0.1/hook"})

    detail = reply.problem(400, "invalid_input")["detail"]
    assert "--push-allow NETWORK" in detail
    assert ".." not in detail


async def test_a_missing_queue_is_made_by_the_command_in_the_message(api: Api) -> None:
    reply = await api("GET", "/v1/queues/eu%2Fit's", authorization="Bearer of_x")

    detail = reply.problem(404, "queue_not_found")["detail"]
    words = shlex.split(detail[detail.index("curl ") :], posix=True)
    assert words == [
        "curl", "-X", "PUT", "http://localhost/v1/queues/eu%2Fit%27s",
        "-H", "Authorization: Bearer $ONEFOLD_API_KEY",
    ]  # fmt: skip


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("GET", "/secret"),
        ("POST", "/secret"),
        ("GET", "/dead"),
        ("DELETE", "/dead"),
        ("POST", "/dead/replay"),
    ],
)
async def test_what_is_not_there_is_said_not_to_be(api: Api, method: str, path: str) -> None:
    told = (await api(method, f"/v1/queues/nowhere{path}")).problem(404, "queue_not_found")
    assert told["queue"] == "nowhere"


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("member", "seconds", "bounds"),
    [("timeout", 0, "0.1 to 900"), ("ackTimeout", 2_592_001, "1 to 2592000")],
)
async def test_the_bounds_of_a_timeout_are_given_in_seconds(
    api: Api, member: str, seconds: int, bounds: str
) -> None:
    problem = (await api("PUT", "/v1/queues/payments", {member: seconds})).problem(
        400, "invalid_input"
    )

    expected = f"{member} must be {bounds} seconds, got {seconds}. Nothing was stored."
    assert problem["detail"] == expected


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
async def test_a_private_endpoint_where_it_is_allowed(store: Store, clock: Clock) -> None:
    api = Api(store.open(clock=clock), push_allow=("127.0.0.0/8",))

    reply = await api("PUT", "/v1/queues/payments", {"endpoint": "http://127.0.0.1:8000/hook"})

    assert reply.status == 201
