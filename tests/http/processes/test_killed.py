"""Server processes that are killed in the middle of a request, and what its retry is told."""

from datetime import timedelta

import pytest

from tests.fixtures.patience import LOCK
from tests.http.processes.site import Said, Server, Site


def killed(site: Site, path: str, *, at: str = "began", lease: timedelta | None = None) -> Server:
    """A server beside one that was killed when its handler was there."""
    changes = {} if lease is None else {"lease": lease}
    victim, call = site.held(path, "k", at=at, **changes)
    victim.kill()
    call.breaks()
    return site.start(**changes)


def check_replays(server: Server, path: str, first: Said) -> None:
    again = server.post(path, "k")
    assert (again.status, again.body, again.is_replay) == (first.status, first.body, True)


# --- leased ---------------------------------------------------------------------------------------


@pytest.mark.prove
def test_h142_h186_until_its_lease_ends_the_key_of_a_killed_process_is_busy(site: Site) -> None:
    """The client is told a time by the clock that decides it, and never a later one."""
    server = killed(site, "/rerun", lease=LOCK)

    ends, before = site.lease("k")
    said = server.post("/rerun", "k")

    assert (said.status, said.code) == (409, "in_progress")
    latest = -((before - ends) // 1_000_000)
    assert 1 <= int(said.headers["retry-after"]) <= latest
    assert site.ledger.count("began") == 1


def test_h143_then_it_is_run_again_where_the_route_says_so(site: Site) -> None:
    server = killed(site, "/rerun")

    said = server.insist("/rerun", "k")

    first, second = site.ledger.lines("began")
    assert said.receipt["fence"] == second.fence > first.fence
    check_replays(server, "/rerun", said)


@pytest.mark.prove
def test_h144_or_it_is_resumed_without_the_steps_that_are_done(site: Site) -> None:
    server = killed(site, "/resume")

    said = server.insist("/resume", "k")

    assert said.receipt["resumed"]
    assert [site.ledger.count(word) for word in ("charged", "mailed")] == [1, 1]
    check_replays(server, "/resume", said)


@pytest.mark.prove
def test_h145_or_it_is_unknown_until_somebody_has_found_out(site: Site) -> None:
    server = killed(site, "/refuse", at="effected")

    for said in (server.insist("/refuse", "k"), server.post("/refuse", "k")):
        assert (said.status, said.code) == (409, "outcome_unknown")
        assert "retry-after" not in said.headers
    assert site.ledger.count("began") == 1


# --- joined ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["effected", pytest.param("began", marks=pytest.mark.prove)])
def test_h136_a_joined_request_of_a_killed_process_leaves_nothing_and_its_retry_runs(
    site: Site, at: str
) -> None:
    """There is no lease to wait for: the transaction was it."""
    server = killed(site, "/joined", at=at)

    said = server.insist("/joined", "k")

    assert site.effects() == [("k", said.receipt["fence"])]
    check_replays(server, "/joined", said)


# --- both -----------------------------------------------------------------------------------------


@pytest.mark.prove
@pytest.mark.parametrize("path", ["/joined", "/refuse"])
def test_h161_what_was_committed_and_never_sent_is_replayed(site: Site, path: str) -> None:
    victim, server = site.start(dies=True, lease=LOCK), site.start()
    call = victim.call(path, "k")
    victim.dies()
    call.breaks()

    said = server.post(path, "k")

    assert said.is_replay
    (began,) = site.ledger.lines("began")
    assert said.receipt["fence"] == began.fence
    check_replays(server, path, said)
