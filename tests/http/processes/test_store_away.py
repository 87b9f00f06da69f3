"""A database that goes away in the middle of a request: closed, or told; never just success."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.faults.proxy import Proxy
from tests.fixtures.place import Place
from tests.http.processes.site import Said, Server, Site

PATIENCE = timedelta(seconds=0.5)


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    """The wire of a server to its database."""
    made = Proxy(postgres_url)
    yield made
    made.close()


@pytest.fixture
def far(postgres_place: Place, proxy: Proxy) -> Place:
    """The database, by that wire."""
    return postgres_place._replace(url=proxy.url)


def check_away(said: Said, code: str) -> None:
    assert (said.status, said.problem) == (503, code)
    assert int(said.headers["retry-after"]) >= 1


# --- when the key is to be claimed ----------------------------------------------------------------


def test_h152_without_its_store_a_keyed_request_is_not_carried_out(
    postgres_site: Site, far: Place, proxy: Proxy
) -> None:
    site = postgres_site
    server = site.start(place=far, patience=PATIENCE)
    proxy.close()

    for path in ("/joined", "/rerun", "/refuse"):
        check_away(server.post(path, "k"), "unavailable")
    assert site.ledger.count("began") == 0


def test_h152_or_it_runs_unprotected_where_the_route_says_so_and_says_it_to_the_client(
    postgres_site: Site, far: Place, proxy: Proxy
) -> None:
    server = postgres_site.start(place=far, patience=PATIENCE)
    proxy.close()

    said = server.post("/open", "k")

    assert said.receipt
    assert said.headers["idempotency-unprotected"] == "true"


def test_h152_so_it_is_where_somebody_keeps_the_file_for_himself(sqlite_site: Site) -> None:
    site = sqlite_site
    server = site.start(patience=PATIENCE)
    assert server.post("/rerun", "before").receipt

    with site.place.transaction():
        check_away(server.post("/rerun", "k"), "unavailable")
        busy = server.post("/joined", "k")

    # Whoever has the file may be at work on this very key.
    assert (busy.status, busy.problem) == (409, "in_progress")
    assert server.post("/rerun", "k").receipt


# --- while the handler runs -----------------------------------------------------------------------


def test_h149_a_handler_whose_lease_cannot_be_renewed_is_told_and_cannot_settle(
    postgres_site: Site, far: Place, proxy: Proxy
) -> None:
    site = postgres_site
    _, call = site.held("/watchful", "k", place=far, patience=PATIENCE)

    proxy.close()

    check_away(call.answer(), "not_recorded")
    assert site.ledger.count("lost") == 1
    said = site.start().insist("/watchful", "k")
    first, second = site.ledger.lines("began")
    assert said.receipt["fence"] == second.fence > first.fence


# --- when the answer is to be stored --------------------------------------------------------------


def test_h153_a_store_that_goes_away_at_the_end_means_undone_where_all_is_one_commit(
    postgres_site: Site, far: Place, proxy: Proxy
) -> None:
    site = postgres_site
    _, call = site.held("/joined", "k", place=far, patience=PATIENCE, at="effected")

    proxy.close()
    site.open_gate()

    check_away(call.answer(), "not_recorded")
    assert site.effects() == []
    said = site.start().insist("/joined", "k")
    assert site.effects() == [("k", said.receipt["fence"])]


def test_h153_and_unknown_where_it_is_not(postgres_site: Site, far: Place, proxy: Proxy) -> None:
    site = postgres_site
    _, call = site.held("/refuse", "k", place=far, patience=PATIENCE, at="effected")

    proxy.close()
    site.open_gate()

    check_away(call.answer(), "not_recorded")
    check_unknown(site, site.start())


def test_h153_so_it_is_where_somebody_keeps_the_file_for_himself(sqlite_site: Site) -> None:
    site = sqlite_site
    server, call = site.held("/refuse", "k", patience=PATIENCE, at="effected")

    with site.place.transaction():
        site.open_gate()
        check_away(call.answer(), "not_recorded")

    check_unknown(site, server)


def check_unknown(site: Site, server: Server) -> None:
    assert server.insist("/refuse", "k").problem == "outcome_unknown"
    assert site.ledger.count("began") == 1
