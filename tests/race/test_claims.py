"""N claims of one key at once: one Won; a takeover has one winner; joined effects happen once."""

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from onefold import LeaseLost, OutcomeUnknown
from onefold.claims import Busy, Claim, Done, Replay, Won
from tests.fixtures.place import Place
from tests.fixtures.proof import proved, repetitions
from tests.race.crew import Crew, Racer, errors, race_by, values

ROUNDS = repetitions(5, soak=300)
HOUR = timedelta(hours=1)
INSTANT = timedelta(microseconds=1)


async def claim(racer: Racer, key: str, options: dict[str, Any]) -> Any:
    return await racer.calls.claim("race", key, **options)


def kinds(answers: list[Any]) -> Counter[str]:
    return Counter(type(answer).__name__ for answer in answers)


def claims_by(racers: str, crew: Crew, place: Place, key: str, **options: Any) -> list[Any]:
    return values(race_by(racers, crew, place, claim, key, options))


@pytest.mark.parametrize("racers", ["processes", *proved("threads", "tasks")])
def test_of_many_claims_one_is_won_and_the_others_are_busy_and_then_replayed(
    place: Place, crew: Crew, racers: str
) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        answers = claims_by(racers, crew, place, key, lease=HOUR)
        assert kinds(answers) == {"Won": 1, "Busy": len(answers) - 1}
        with place.open() as onefold:
            (won,) = [answer for answer in answers if isinstance(answer, Won)]
            onefold.keys.settle(won.claim, "done")
        later = claims_by(racers, crew, place, key, lease=HOUR)
        assert kinds(later) == {"Replay": len(later)}
        assert {answer.result for answer in later if isinstance(answer, Replay)} == {"done"}


@pytest.mark.parametrize("racers", ["processes", *proved("threads", "tasks")])
@pytest.mark.parametrize("takeover", ["rerun", "resume"])
def test_a_claim_whose_holder_vanished_is_taken_over_by_one(
    place: Place, crew: Crew, racers: str, takeover: Any
) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        with place.open() as onefold:
            first = onefold.claim("race", key, lease=INSTANT, takeover=takeover)
            assert isinstance(first, Won)
            answers = claims_by(racers, crew, place, key, lease=HOUR, takeover=takeover)
            assert kinds(answers) == {"Won": 1, "Busy": len(answers) - 1}
            (won,) = [answer for answer in answers if isinstance(answer, Won)]
            assert won.claim.fence > first.claim.fence
            with pytest.raises(LeaseLost):
                onefold.keys.settle(first.claim, "too late")
            onefold.keys.settle(won.claim, "in time")


def settle(racer: Racer, held: Claim) -> None:
    racer.onefold.keys.settle(held, racer.rank)


def once(racer: Racer, key: str) -> int | None:
    """The effect is a row of the application's own, in the transaction of the claim."""
    with racer.place.transaction() as connection:
        try:
            with racer.onefold.within(connection).once("race", key) as claimed:
                assert claimed is not None
                if claimed.won:
                    connection.execute(f"insert into effect (name) values ('{key}')")
                    claimed.result = racer.rank
                return int(claimed.result)
        except Busy:
            return None


def test_a_joined_effect_happens_exactly_once(place: Place, crew: Crew) -> None:
    place = _with_effects(place)
    for _ in range(ROUNDS):
        key = uuid4().hex
        first = values(crew.race(place, once, key))
        again = values(crew.race(place, once, key))
        (result,) = set(again)
        assert set(first) <= {result, None}
        assert place.rows(f"select count(*) from effect where name = '{key}'") == [(1,)]


def once_leased(racer: Racer, key: str) -> int:
    """Waits while somebody else is at work, and gets that one's result."""
    with racer.onefold.once("race", key, lease=HOUR, wait=HOUR) as claimed:
        assert claimed is not None
        if claimed.won:
            with racer.place.transaction() as connection:
                connection.execute(f"insert into effect (name) values ('{key}')")
            claimed.result = racer.rank
        return int(claimed.result)


def test_a_leased_effect_happens_once_where_nobody_vanishes(place: Place, crew: Crew) -> None:
    place = _with_effects(place)
    for _ in range(ROUNDS):
        key = uuid4().hex
        assert len(set(values(crew.race(place, once_leased, key)))) == 1
        assert place.rows(f"select count(*) from effect where name = '{key}'") == [(1,)]


def verified(racer: Racer, key: str) -> str:
    """Everybody finds out at once that the vanished attempt had come through."""
    with racer.onefold.once("race", key, verify=lambda _: Done("found")) as claimed:
        assert claimed is not None
        return str(claimed.result)


def test_an_unknown_outcome_is_settled_the_same_for_everybody(place: Place, crew: Crew) -> None:
    for _ in range(ROUNDS):
        key = uuid4().hex
        with place.open() as onefold:
            onefold.claim("race", key, lease=INSTANT)
            with pytest.raises(OutcomeUnknown), onefold.once("race", key):
                pass
        assert set(values(crew.race(place, verified, key))) == {"found"}


def locked(racer: Racer, name: str, rounds: int) -> list[int]:
    """Under the lock nobody else is: a count that is read and written back is never lost."""
    fences: list[int] = []
    for _ in range(rounds):
        with (
            racer.onefold.lock(name, ttl=HOUR, wait=HOUR) as lock,
            racer.place.connection() as connection,
        ):
            ((count,),) = connection.execute(f"select n from tally where name = '{name}'")
            connection.execute(f"update tally set n = {count + 1} where name = '{name}'")
            fences.append(lock.fence)
    return fences


def test_a_lock_has_one_holder_at_a_time_and_growing_fences(place: Place, crew: Crew) -> None:
    place = _with_effects(place)
    name, rounds = uuid4().hex, repetitions(5, soak=200)
    with place.transaction() as connection:
        connection.execute(f"insert into tally values ('{name}', 0)")
    fences = values(crew.race(place, locked, name, rounds))
    assert place.rows(f"select n from tally where name = '{name}'") == [(rounds * crew.size,)]
    assert all(mine == sorted(mine) for mine in fences)
    assert len({fence for mine in fences for fence in mine}) == rounds * crew.size


def test_the_same_settle_by_several_counts_for_its_holder_alone(place: Place, crew: Crew) -> None:
    """A retried settle is the same word; whoever comes later, with another fence, is refused."""
    for _ in range(ROUNDS):
        with place.open() as onefold:
            first = onefold.claim("race", uuid4().hex, lease=INSTANT, takeover="rerun")
            assert isinstance(first, Won)
            second = onefold.claim("race", first.claim.key.key, lease=HOUR)
            assert isinstance(second, Won)
            assert values(crew.race(place, settle, second.claim)) == [None] * crew.size
            refused = errors(crew.race(place, settle, first.claim))
            assert [type(error) for error in refused] == [LeaseLost] * crew.size


def _with_effects(place: Place) -> Place:
    """The application's own tables, in the schema of the test."""
    with place.transaction() as connection:
        if place.on_postgres:
            connection.execute(f"set local search_path to {place.schema}")
        connection.execute("create table effect (name text not null)")
        connection.execute("create table tally (name text not null, n integer not null)")
    if not place.on_postgres:
        return place
    separator = "&" if "?" in place.url else "?"
    options = f"options=-csearch_path%3D{place.schema}"
    return place._replace(url=f"{place.url}{separator}{options}")
