"""Handlers that take longer than a lease."""

from datetime import UTC, datetime, timedelta

import pytest

from onefold.claims import Won
from onefold.effects.lease_keeper import LeaseKeeper
from tests.http.processes.app import WHO
from tests.http.processes.site import Site
from tests.kill.workers import until

LEASE = timedelta(seconds=1.5)


@pytest.mark.parametrize("path", ["/blocking", pytest.param("/refuse", marks=pytest.mark.prove)])
def test_h148_a_handler_that_takes_longer_than_its_lease_keeps_the_key(
    site: Site, path: str
) -> None:
    """Also one that lets nothing else run in its event loop: the heart is a thread."""
    _, call = site.held(path, "k", lease=LEASE)
    other = site.start(lease=LEASE)
    ends, _ = site.lease("k")

    until(lambda: site.lease("k")[1] > ends, "for the first lease to end")
    said = other.post(path, "k")
    site.open_gate()

    assert (said.status, said.code) == (409, "in_progress")
    told = call.answer()
    again = other.post(path, "k")
    assert told.receipt
    assert (again.body, again.is_replay) == (told.body, True)
    assert site.ledger.count("began") == 1


def test_h148_a_beat_that_fails_for_whatever_reason_is_tried_again(site: Site) -> None:
    failures = [ValueError("one day we could not tell the time")]

    def clock() -> datetime:
        if failures and started:
            raise failures.pop()
        return datetime.now(UTC)

    started = False
    with site.place.open(clock=clock) as onefold:
        won = onefold.claim(WHO, "k", surface="http", lease=LEASE, takeover="rerun")
        assert isinstance(won, Won)
        ends, _ = site.lease("k")
        started, heart = True, LeaseKeeper(onefold.context)
        beat = heart.keep(won.claim, LEASE)
        until(lambda: site.lease("k")[0] > ends, "for the lease to be renewed")
        heart.let_go(beat)

    assert not failures
