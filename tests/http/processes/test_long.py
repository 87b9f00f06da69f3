"""A hundred identical requests over four server processes, and handlers that outlast a lease."""

from datetime import UTC, datetime, timedelta

import pytest

from onefold.claims import Won
from onefold.effects.lease_keeper import LeaseKeeper
from tests.fixtures.patience import LOCK
from tests.http.processes.app import WHO
from tests.http.processes.site import Call, Said, Site
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


SIZE = 100
SERVERS = 4


@pytest.mark.parametrize("path", ["/joined", pytest.param("/resume", marks=pytest.mark.prove)])
def test_h113_of_a_hundred_at_once_one_runs_and_none_fails(site: Site, path: str) -> None:
    servers = [site.start(lease=LOCK) for _ in range(SERVERS)]
    calls = [Call(servers[n % SERVERS].port, path, "k") for n in range(SIZE)]

    for call in calls:
        call.go()
    answers = [call.answer() for call in calls]

    first = check(site, answers)
    for server in servers:
        retry = server.post(path, "k")
        assert (retry.status, retry.body) == (first.status, first.body)
        assert retry.is_replay


def check(site: Site, answers: list[Said]) -> Said:
    """One has run; the others were told so, or what it answered."""
    (first,) = [said for said in answers if said.status == 200 and not said.is_replay]
    for said in answers:
        if said.status == 200:
            assert said.body == first.body
        else:
            assert (said.status, said.code) == (409, "in_progress")
            assert int(said.headers["retry-after"]) >= 1
    assert site.ledger.count("began") == 1
    return first
