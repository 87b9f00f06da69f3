"""The same answer again, and for how long."""

import threading
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest

from onefold import Onefold
from onefold.claims import Done, NotDone
from onefold.web.http import HttpRequest, HttpResponse
from onefold.web.idempotency.key import KeyRules
from tests.fixtures.colours import Clock
from tests.http.apps_steps import DONE, Counter
from tests.http.scenario_modes import LEASED_SQLITE, OURS_POSTGRES, OURS_SQLITE
from tests.http.scenario_site import OpenSite

HOUR = timedelta(hours=1)
OURS = pytest.mark.parametrize("mode", [OURS_SQLITE, OURS_POSTGRES], ids=str)


def dated(moment: datetime) -> str:
    """A UUIDv7 of a moment."""
    milliseconds = int(moment.timestamp() * 1000)
    return str(uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | 0x2 << 62 | 1))


async def test_h182_keys_that_carry_their_time_are_refused_when_it_has_passed(
    open_site: OpenSite, clock: Clock
) -> None:
    site = await open_site(expired="refuse", key=KeyRules(format="uuid"), retention=HOUR)
    key = dated(clock.now)

    assert (await site.post(key=key)).status == 201
    clock.advance(HOUR - timedelta(seconds=1))
    assert (await site.post(key=key)).is_replay
    clock.advance(timedelta(seconds=1))
    late = await site.post(key=key)

    assert (late.status, late.code) == (400, "key_expired")
    assert site.shop.runs == 1
    for other in (dated(clock.now + HOUR + timedelta(seconds=1)), str(uuid.uuid4())):
        assert (await site.post(key=other)).code == "key_invalid"
    assert (await site.post(key=dated(clock.now + HOUR))).status == 201


async def test_h185_an_unknown_outcome_is_found_and_settled_by_an_operator(
    onefold: Onefold, clock: Clock
) -> None:
    counter = Counter(onefold, takeover="refuse", lease=timedelta(seconds=60))
    await counter.begin()
    clock.advance(timedelta(seconds=61))
    told = await counter.carry_out()
    assert b"outcome_unknown" in told.body

    (found,) = (await onefold.keys.afind(surface="http", state="unknown")).keys
    assert await onefold.keys.aforce_release(found.scope, found.key, surface="http")

    assert await counter.carry_out() == DONE


@pytest.mark.parametrize(
    ("verdict", "body"),
    [(Done(HttpResponse(200, (), b"charged")), b"charged"), (NotDone(), b"done")],
    ids=["done", "not-done"],
)
async def test_h185_or_the_route_finds_out_with_the_next_retry(
    onefold: Onefold, clock: Clock, verdict: Any, body: bytes
) -> None:
    asked: list[int] = []

    def verify(key: str) -> Any:
        asked.append(threading.get_ident())
        return verdict if key == "k" else None

    counter = Counter(onefold, takeover="refuse", lease=timedelta(seconds=60), verify=verify)
    await counter.begin()
    clock.advance(timedelta(seconds=61))

    answers = [await counter.carry_out() for _ in range(2)]

    assert [answer.body for answer in answers] == [body, body]
    assert asked
    assert threading.get_ident() not in asked, "it may block"


@OURS
async def test_h187_a_clock_that_goes_back_brings_no_key_back(
    open_site: OpenSite, clock: Clock
) -> None:
    site = await open_site(retention=HOUR)
    await site.post()
    clock.advance(HOUR)
    second = await site.post()
    clock.advance(-HOUR)

    retry = await site.post()

    assert (retry.body, retry.is_replay) == (second.body, True)
    assert site.payments == [1, 2]


SETTLED = 1
BOTH = pytest.mark.parametrize("mode", [OURS_SQLITE, LEASED_SQLITE], ids=str)


async def test_h072_a_route_may_give_a_newer_answer_instead(open_site: OpenSite) -> None:
    async def refresh(request: HttpRequest, stored: HttpResponse) -> HttpResponse:
        return HttpResponse(stored.status, stored.headers, stored.body + request.path.encode())

    site = await open_site(refresh=refresh)
    await site.post()

    retry = await site.post()

    assert (retry.body, retry.is_replay) == (b'{"payment": 1}/pay', True)
    assert retry.headers["content-length"] == str(len(retry.body))
    assert site.payments == [1]


async def test_h073_a_first_answer_may_be_marked_as_one(open_site: OpenSite) -> None:
    site = await open_site(mark_first=True, marker="X-Replayed")

    marks = [(await site.post()).headers["x-replayed"] for _ in range(2)]

    assert marks == ["false", "true"]


@pytest.mark.parametrize(
    ("mode", "at_work"), [(OURS_SQLITE, "in_progress"), (LEASED_SQLITE, "key_reused")], ids=str
)
async def test_h051_h063_the_fingerprint_is_compared_on_every_way_to_an_answer(
    open_site: OpenSite, at_work: str
) -> None:
    site = await open_site(patience=timedelta(milliseconds=200))
    other = b'{"amount": 2}'

    async with site.held():
        # Joined, nobody but the first can know what it was asked before it is committed.
        assert (await site.post(body=other)).code == at_work
        assert (await site.post()).code == "in_progress"
    settled = await site.post(body=other)
    await site.post(key="late")
    again = await site.post(key="late", body=other)

    assert {reply.code for reply in (settled, again)} == {"key_reused"}


async def test_h061_a_route_may_change_how_it_compares_and_old_keys_keep_theirs(
    open_site: OpenSite,
) -> None:
    before, after = await open_site(), await open_site(fingerprint="json")
    await before.post()

    assert (await after.post()).is_replay
    assert (await after.post(body=b'{"amount":   1}')).code == "key_reused"


FIRST: dict[str, Any] = {"path": "/pay?a=1&b=2", "body": b'{"a": 1, "b": 2}'}
SPELLED = b'{"b":2,"a":1}'
VERSION, NEWER = {"Api-Version": "1"}, {"Api-Version": "2"}
TOKENS = KeyRules(headers=("Idempotency-Key", "X-Request-Token"))


@pytest.mark.parametrize(
    ("options", "retry", "outcome"),
    [
        ({}, {"path": "/pay?a=1&b=3"}, "key_reused"),  # H036
        ({"canonical_query": True}, {"path": "/pay?b=2&a=1"}, "replay"),
        ({}, {"method": "PATCH"}, "key_reused"),  # H035
        ({"scope": "route"}, {"method": "PATCH"}, "new"),
        ({}, {"headers": {"X-Tenant": "other"}, "body": b"another"}, "new"),  # H038
        ({}, {"user": "Bearer alice:second-token"}, "replay"),  # H041
        ({}, {"headers": NEWER}, "replay"),
        ({"fingerprint_headers": ("Api-Version",)}, {"headers": NEWER}, "key_reused"),  # H049
        ({"fingerprint": "json"}, {"body": SPELLED}, "replay"),
        ({"key": TOKENS}, {"key": None, "headers": {"X-Request-Token": "k"}}, "replay"),
        ({"key": TOKENS}, {"headers": {**VERSION, "X-Request-Token": "l"}}, "key_invalid"),  # H025
        ({"key": KeyRules(min_length=16)}, {"key": "1" * 16}, "new"),  # H027, H119
    ],
)
async def test_what_makes_a_retry_of_a_request(
    open_site: OpenSite, options: dict[str, Any], retry: dict[str, Any], outcome: str
) -> None:
    site = await open_site(**options)
    await site.post(**FIRST, headers=VERSION)

    again: dict[str, Any] = {**FIRST, "headers": VERSION, **retry}
    reply = await site.post(**again)

    if outcome in ("replay", "new"):
        assert (reply.status, reply.is_replay) == (201, outcome == "replay")
    else:
        assert reply.code == outcome


async def test_h034_keys_per_route_are_told_by_the_template_and_its_values_by_the_fingerprint(
    open_site: OpenSite,
) -> None:
    site = await open_site(scope="route")
    await site.post("/orders/1")

    assert (await site.post("/orders/2")).code == "key_reused"
    assert (await site.post("/orders/1")).is_replay
