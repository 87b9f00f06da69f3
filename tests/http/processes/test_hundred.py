"""A hundred identical requests at once, over four server processes."""

import pytest

from tests.fixtures.patience import LOCK
from tests.http.processes.site import Call, Said, Site

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
