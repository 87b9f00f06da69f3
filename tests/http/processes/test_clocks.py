"""Clocks that differ, and clocks that go back: the database's decides, and no key comes back.

SQLite's clock is that of the machine, and all who open a file are on one.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.http.processes.app import Scene, build
from tests.http.processes.site import BODY, Site

MINUTES = 300.0
LONG = timedelta(minutes=1)


@pytest.mark.parametrize("ahead", [MINUTES, -MINUTES])
def test_h186_processes_whose_clocks_differ_agree_on_a_lease(
    postgres_site: Site, ahead: float
) -> None:
    site = postgres_site
    victim, call = site.held("/rerun", "k", lease=LONG, clock=ahead)
    others = [site.start(clock=clock, lease=LONG) for clock in (-ahead, 0.0)]
    victim.kill()
    call.breaks()

    for other in others:
        said = other.post("/rerun", "k")
        assert said.problem == "in_progress"
        assert 1 <= int(said.headers["retry-after"]) <= LONG.total_seconds()
    assert site.ledger.count("began") == 1


@pytest.mark.parametrize("ahead", [MINUTES, -MINUTES])
def test_h186_and_on_who_comes_after_whom(postgres_site: Site, ahead: float) -> None:
    site = postgres_site
    victim, call = site.held("/rerun", "k", clock=ahead)
    victim.kill()
    call.breaks()

    said = site.start(clock=-ahead).insist("/rerun", "k")

    first, second = site.ledger.lines("began")
    assert said.receipt["fence"] == second.fence > first.fence


class Clock:
    """Says what it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 15, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


async def posted(client: httpx.AsyncClient, key: str = "k") -> Any:
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    return await client.post("/rerun", content=BODY, headers=headers)


def test_h187_a_clock_that_goes_back_brings_no_answer_back(site: Site) -> None:
    clock = Clock()
    then, later = clock.now, clock.now + timedelta(hours=25)

    async def walk() -> None:
        async with site.place.open(clock=clock) as onefold:
            transport = httpx.ASGITransport(build(Scene(site.place, site.ledger), onefold))
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                first = await posted(client)
                clock.now = later
                second = await posted(client)
                clock.now = then
                third = await posted(client)
        assert second.json()["fence"] > first.json()["fence"]
        assert (third.content, "idempotent-replayed" in third.headers) == (second.content, True)

    asyncio.run(walk())
    assert site.ledger.count("began") == 2


def test_h187_nor_does_it_make_a_lease_end_before_it_has_begun(site: Site) -> None:
    clock = Clock()
    scene = Scene(site.place, site.ledger, gate=site.gate, lease=LONG)

    async def walk() -> None:
        async with site.place.open(clock=clock) as onefold:
            transport = httpx.ASGITransport(build(scene, onefold))
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                first = asyncio.create_task(posted(client))
                while not site.ledger.count("began"):  # noqa: ASYNC110 - a file says it
                    await asyncio.sleep(0.01)
                clock.now -= timedelta(hours=1)
                busy = await posted(client)
                site.open_gate()
                told = await first
                again = await posted(client)
        assert (busy.status_code, busy.json()["code"]) == (409, "in_progress")
        assert int(busy.headers["retry-after"]) >= 1
        assert (again.content, "idempotent-replayed" in again.headers) == (told.content, True)

    asyncio.run(walk())
    assert site.ledger.count("began") == 1
