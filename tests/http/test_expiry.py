"""Time: how long keys count, and by whose clock."""

import threading
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest

from onefold import Onefold
from onefold.claims import Done, NotDone
from onefold.web.http import HttpResponse
from onefold.web.idempotency.key import KeyRules
from tests.fixtures.colours import Clock
from tests.http.apps_steps import DONE, Counter
from tests.http.scenario_modes import OURS_POSTGRES, OURS_SQLITE
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
