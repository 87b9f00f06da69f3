"""Everything at once, and afterwards the books are held against a record of every change."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import getrandbits
from typing import Any

import pytest

from onefold import NewJob
from tests.fixtures.place import Place
from tests.fixtures.proof import proved, repetitions
from tests.race import audit
from tests.race.crew import Crew, race_by, values
from tests.race.hammer import SCOPES, hammer

DAY = timedelta(days=1)
FIRST: Any = {"worker": "last", "lease": DAY}


@pytest.mark.parametrize("racers", ["processes", *proved("threads")])
def test_whatever_happens_at_once_no_rule_is_broken_at_any_moment(
    place: Place, crew: Crew, racers: str
) -> None:
    audit.install(place)
    books = audit.Books(set(), set(), set())
    counts: Counter[str] = Counter()
    for turn in range(repetitions(1, soak=10)):
        seed, steps = str(getrandbits(64)), repetitions(150, soak=1_000)
        reports = values(race_by(racers, crew, place, hammer, steps, seed, turn, size=4))
        for report in reports:
            books.answered.update(report.answered)
            books.undone.update(report.undone)
            books.triggers.update(report.triggers)
            counts += report.counts
        drain(place)
        audit.check(audit.read(place), books)
    assert counts["duplicate"] > 0
    # What is over has given its key up; what promised longer has not.
    with place.open(clock=lambda: datetime.now(UTC) + 9 * DAY) as onefold:
        for scope, options in SCOPES.items():
            answer = onefold.enqueue_many(
                [NewJob("hammer", {"number": 0}, unique_key=f"{scope} 0", **options)]
            )
            assert answer.inserted == (scope != "exists")


def drain(place: Place) -> None:
    """Let time pass, and finish all that is left, until nothing is queued or running."""
    now = datetime.now(UTC)
    with place.open(clock=lambda: now) as onefold:
        while onefold.find(state=["scheduled", "ready", "retrying", "running"], limit=1):
            now += DAY
            onefold.deliveries.rescue()
            while jobs := onefold.deliveries.take(["default", "other"], limit=500, **FIRST):
                onefold.deliveries.finish(jobs)
