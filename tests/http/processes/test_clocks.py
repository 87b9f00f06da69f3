"""Clocks that differ, and clocks that go back: the database's decides, and no key comes back."""

import asyncio
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from onefold import Onefold
from onefold.calls.once import Done
from tests.fixtures.place import Place
from tests.http.processes.app import WHO, build
from tests.http.processes.site import BODY, Said, Site

MINUTES = 300.0
LONG = timedelta(minutes=1)


@pytest.mark.parametrize("ahead", [MINUTES, -MINUTES])
def test_h186_processes_whose_clocks_differ_agree_on_a_lease(site: Site, ahead: float) -> None:
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
def test_h186_and_on_who_comes_after_whom(site: Site, ahead: float) -> None:
    victim, call = site.held("/rerun", "k", clock=ahead)
    victim.kill()
    call.breaks()

    said = site.start(clock=-ahead).insist("/rerun", "k")

    first, second = site.ledger.lines("began")
    assert said.receipt["fence"] == second.fence > first.fence
