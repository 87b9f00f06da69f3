"""Every route, walked with what is somebody else's: it answers as for what never existed.

Not only in the same words: after the same statements, in the same order, so that its time says no
more than its body does.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from onefold.operations.statement import Sql
from onefold.server.app import ROUTES
from tests.fixtures.served import NOTHING, Reply
from tests.server.tenancy.neighbours import Neighbour, Neighbours, Things, never

# A stream has no end to wait for: see test_apart.py.
ENDLESS = {"streamEvents"}
RANDOM = {"requestId", "fence", "signingSecret"}
"""Members that are never the same twice."""


class Ask(NamedTuple):
    path: str
    body: Any = NOTHING


def asks(of: Things) -> dict[str, Ask]:
    """A request to every route, by the operation's name, that speaks of these things."""
    queue, job, step = f"/v1/queues/{of.queue}", "/v1/jobs", {"action": "begin", "fence": of.fence}
    published = {"payload": 1, "idempotencyKey": of.publish_key, "uniqueKey": of.unique_key}
    schedule, key = f"/v1/schedules/{of.schedule}", f"/v1/keys/once/{of.key}"
    return {
        "publishJob": Ask(f"{queue}/jobs", published),
        "publishJobs": Ask(f"{queue}/jobs/batch", {"items": [published, published]}),
        "acknowledgeJob": Ask(f"{job}/{of.running}/ack", {"result": 1}),
        "nackJob": Ask(f"{job}/{of.running}/nack", {"fence": of.fence}),
        "deferJob": Ask(f"{job}/{of.running}/defer", {"retryAfter": 60}),
        "heartbeatJob": Ask(f"{job}/{of.running}/heartbeat", {}),
        "getJob": Ask(f"{job}/{of.waiting}"),
        "getAttempts": Ask(f"{job}/{of.waiting}/attempts"),
        "findJobs": Ask(f"{job}?queue={of.queue}&uniqueKey={of.unique_key}&after={of.waiting}"),
        "cancelJob": Ask(f"{job}/{of.waiting}/cancel", {}),
        "deleteJob": Ask(f"{job}/{of.dead}"),
        "replayJob": Ask(f"{job}/{of.dead}/replay", {}),
        "claim": Ask("/v1/claims", {"scope": "import", "key": of.key}),
        "settleClaim": Ask(f"/v1/claims/{of.claim}/settle", {"result": 1}),
        "releaseClaim": Ask(f"/v1/claims/{of.claim}/release", {}),
        "renewClaim": Ask(f"/v1/claims/{of.claim}/heartbeat", {}),
        "lock": Ask("/v1/locks", {"name": "ledger" if of.key == "k-1" else "ledgez"}),
        "releaseLock": Ask(f"/v1/locks/{of.lock}/release", {}),
        "renewLock": Ask(f"/v1/locks/{of.lock}/heartbeat", {}),
        "deleteLock": Ask(f"/v1/locks/{of.lock}"),
        "putStep": Ask(f"{job}/{of.running}/steps/charge", step),
        "listSteps": Ask(f"{job}/{of.running}/steps"),
        "getStep": Ask(f"{job}/{of.running}/steps/charge"),
        "listQueues": Ask("/v1/queues"),
        "putQueue": Ask(queue, {"concurrency": 1}),
        "getQueue": Ask(queue),
        "deleteQueue": Ask(f"{queue}?force=true"),
        "pauseQueue": Ask(f"{queue}/pause", {}),
        "resumeQueue": Ask(f"{queue}/resume", {}),
        "getSecret": Ask(f"{queue}/secret"),
        "rotateSecret": Ask(f"{queue}/secret", {}),
        "listDead": Ask(f"{queue}/dead"),
        "deleteDead": Ask(f"{queue}/dead"),
        "replayDead": Ask(f"{queue}/dead/replay", {}),
        "listSchedules": Ask("/v1/schedules"),
        "putSchedule": Ask(schedule, {"cron": "0 4 * * *", "queue": of.queue}),
        "getSchedule": Ask(schedule),
        "deleteSchedule": Ask(schedule),
        "pauseSchedule": Ask(f"{schedule}/pause", {}),
        "resumeSchedule": Ask(f"{schedule}/resume", {}),
        "readStatistics": Ask(f"/v1/statistics?queue={of.queue}"),
        "listWorkers": Ask("/v1/workers"),
        "listKeys": Ask(f"/v1/keys?key={of.key}"),
        "why": Ask(f"/v1/why?key={of.unique_key}"),
        "getKey": Ask(key),
        "releaseKey": Ask(f"{key}/release", {"scope": "import"}),
        "settleKey": Ask(f"{key}/settle", {"scope": "import", "result": 1}),
    }


def walked() -> list[str]:
    return [route.name for route in ROUTES if route.name not in ENDLESS]


METHODS = {route.name: route.method for route in ROUTES}


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all statements that are asked for from now on."""
    asked: list[str] = []

    def noting(method: Callable[..., Any]) -> Callable[..., Any]:
        def note(self: Sql, name: str, *rest: Any, **parameters: Any) -> Any:
            asked.append(name)
            return method(self, name, *rest, **parameters)

        return note

    monkeypatch.setattr(Sql, "__call__", noting(Sql.__call__))
    return asked


def test_no_route_is_left_out() -> None:
    things = Things("q", "w", "r", "d", 1, "c", "l", "s", "k", "u", "p")
    templates = {route.name: route.path for route in ROUTES}

    found = asks(things)

    assert set(found) == set(walked())
    for name, ask in found.items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(templates[name]))
        assert re.fullmatch(pattern, ask.path.partition("?")[0]), name


async def answer(
    somebody: Neighbour, name: str, things: Things, statements: list[str]
) -> tuple[Reply, list[str]]:
    ask = asks(things)[name]
    statements.clear()
    reply = await somebody(METHODS[name], ask.path, ask.body)
    # Counts of all earlier requests are written by the next one that reads them.
    return reply, [each for each in statements if each != "add_statistics"]


async def difference(
    somebody: Neighbour, name: str, theirs: Things, nothing: Things, statements: list[str]
) -> tuple[Any, ...]:
    """What a route says of what never was, and of what is another's, unless it is the same."""
    assert (await somebody("GET", "/v1/queues")).status == 200  # the server knows its key now
    expected = await answer(somebody, name, nothing, statements)
    got = await answer(somebody, name, theirs, statements)
    assert "acme" not in repr(got[0]), name
    # A request that makes no sense would be refused before anything is looked up.
    assert got[0].status != 400, got
    return () if spoken(expected, nothing) == spoken(got, theirs) else (expected, got)


def spoken(answered: tuple[Reply, list[str]], things: Things) -> Any:
    """An answer without what it speaks of, and without what is never the same twice."""
    reply, statements = answered
    body: dict[str, Any] = reply.json if reply.body else {}
    hidden = {*RANDOM, "id"} if reply.status == 201 else RANDOM
    text = repr({name: value for name, value in body.items() if name not in hidden})
    for member, thing in things._asdict().items():
        if isinstance(thing, str):
            text = text.replace(thing, f"<{member}>")
    text = text.replace("ledgez", "ledger")
    return reply.status, sorted(reply.headers), text, statements


async def test_what_is_anothers_is_answered_like_what_never_was(
    neighbours: Neighbours, acme: Neighbour, statements: list[str]
) -> None:
    theirs = await acme.furnish()
    before = neighbours.belongings("acme")
    assert all(before.values())

    for number, name in enumerate(walked()):
        # Some routes make what they were asked for.
        somebody = neighbours.called(f"rival-{number}")
        assert await difference(somebody, name, theirs, never(theirs), statements) == (), name
        assert neighbours.belongings("acme") == before, name


async def test_so_are_anothers_ids_for_who_has_everything_under_the_same_names(
    neighbours: Neighbours, acme: Neighbour, rival: Neighbour, statements: list[str]
) -> None:
    theirs, own = await acme.furnish(), await rival.furnish()
    before = neighbours.belongings("acme"), neighbours.belongings("rival")
    by_id = [route.name for route in ROUTES if "{id}" in route.path]
    assert len(by_id) > 10
    assert not set(theirs[1:4]) & set(own[1:4])

    for name in by_id:
        nothing = never(theirs, same_names=True)
        assert await difference(rival, name, theirs, nothing, statements) == (), name

    assert (neighbours.belongings("acme"), neighbours.belongings("rival")) == before
