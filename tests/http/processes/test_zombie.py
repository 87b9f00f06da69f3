"""Server processes that come back when their key is somebody else's: nothing they say counts."""

import signal

import pytest

from tests.http.processes.site import Call, Said, Site


def superseded(site: Site, path: str, *, at: str = "began") -> tuple[Call, Said]:
    """A request whose process stood still past its lease, and what another has answered."""
    zombie, call = site.held(path, "k", at=at)
    other = site.start()

    site.freeze(zombie)
    said = other.insist(path, "k")
    site.open_gate()
    zombie.signal(signal.SIGCONT)
    return call, said


@pytest.mark.parametrize("path", ["/rerun", "/resume"])
def test_h146_who_comes_back_stores_nothing_and_tells_its_client_no_success(
    site: Site, path: str
) -> None:
    call, winner = superseded(site, path)

    told = call.answer()

    assert (told.status, told.problem) == (409, "lease_lost")
    assert int(told.headers["retry-after"]) >= 1
    again = site.start().post(path, "k")
    assert (again.body, again.is_replay) == (winner.body, True)


@pytest.mark.parametrize("path", ["/guarded", "/transacted"])
def test_h147_nor_does_it_begin_a_transaction(site: Site, path: str) -> None:
    call, winner = superseded(site, path)

    check_refused(site, call, winner)


@pytest.mark.parametrize("path", ["/guarded", "/transacted"])
def test_h147_nor_does_its_open_transaction_commit(postgres_site: Site, path: str) -> None:
    """SQLite has one writer: while it stands still in its transaction, nobody takes the key."""
    call, winner = superseded(postgres_site, path, at="effected")

    check_refused(postgres_site, call, winner)


def check_refused(site: Site, call: Call, winner: Said) -> None:
    """H146: that its handler was told so and has raised is no error of the server's, either."""
    told = call.answer()

    assert (told.status, told.problem) == (409, "lease_lost")
    assert site.effects() == [("k", winner.receipt["fence"])]
    assert site.ledger.count("refused") == 1
