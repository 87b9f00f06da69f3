"""What listeners are told of keyed requests."""

from datetime import timedelta
from typing import Any

import pytest

from onefold.events import KeyAnswered
from tests.fixtures.colours import Clock
from tests.http.scenario_modes import LEASED_SQLITE
from tests.http.scenario_site import OpenSite, Site

LEASED = pytest.mark.parametrize("mode", [LEASED_SQLITE], ids=str)


def listened(site: Site) -> list[Any]:
    """Outcome by outcome, as they are told from now on."""
    told: list[Any] = []
    site.shop.onefold.subscribe(told.append)
    return told


def outcomes(told: list[Any]) -> list[str]:
    return [event.outcome for event in told if isinstance(event, KeyAnswered)]


@LEASED
async def test_every_answer_to_a_key_is_told_with_its_route(open_site: OpenSite) -> None:
    site = await open_site()
    told = listened(site)

    async with site.held(headers={"X-Tenant": "acme"}):
        await site.post(headers={"X-Tenant": "acme"})
    await site.post(headers={"X-Tenant": "acme"})
    await site.post(headers={"X-Tenant": "acme"}, body=b"other")

    assert outcomes(told) == ["busy", "won", "replayed", "mismatch"]
    assert {(event.surface, event.tenant) for event in told} == {("http", "acme")}
    assert {event.route for event in told} == {"POST /pay"}


@LEASED
async def test_so_are_outcomes_that_nobody_knows_and_leases_that_were_lost(
    open_site: OpenSite, clock: Clock
) -> None:
    site = await open_site(takeover="rerun", lease=timedelta(seconds=60))
    told = listened(site)

    async with site.held() as zombie:
        clock.advance(timedelta(seconds=61))
        await site.post()
    await zombie

    assert outcomes(told) == ["won", "lost"]


async def test_a_request_without_a_key_is_nothing_to_tell(open_site: OpenSite) -> None:
    site = await open_site(required=False)
    told = listened(site)

    await site.post(key=None)

    assert told == []
