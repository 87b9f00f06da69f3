"""A database that goes away in the middle of a request: closed, or told; never just success."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.faults.proxy import Proxy
from tests.fixtures.place import Place
from tests.http.processes.site import Said, Site

pytestmark = pytest.mark.parametrize("place", ["postgres"], indirect=True)
PATIENCE = timedelta(seconds=0.5)


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    """The wire of a server to its database."""
    made = Proxy(postgres_url)
    yield made
    made.close()


@pytest.fixture
def far(place: Place, proxy: Proxy) -> Place:
    """The database, by that wire."""
    return place._replace(url=proxy.url)


def check_away(said: Said, code: str) -> None:
    assert (said.status, said.code) == (503, code)
    assert int(said.headers["retry-after"]) >= 1


def test_h149_a_handler_whose_lease_cannot_be_renewed_is_told_and_cannot_settle(
    site: Site, far: Place, proxy: Proxy
) -> None:
    _, call = site.held("/watchful", "k", place=far, patience=PATIENCE)

    proxy.close()

    check_away(call.answer(), "not_recorded")
    assert site.ledger.count("lost") == 1
    said = site.start().insist("/watchful", "k")
    first, second = site.ledger.lines("began")
    assert said.receipt["fence"] == second.fence > first.fence


@pytest.mark.prove
def test_h153_a_store_that_goes_away_at_the_end_means_undone_where_all_is_one_commit(
    site: Site, far: Place, proxy: Proxy
) -> None:
    _, call = site.held("/joined", "k", place=far, patience=PATIENCE, at="effected")

    proxy.close()
    site.open_gate()

    check_away(call.answer(), "not_recorded")
    assert site.effects() == []
    said = site.start().insist("/joined", "k")
    assert site.effects() == [("k", said.receipt["fence"])]
