"""The one statement of a claim: stepped by hand on real connections, and hammered."""

import random
from collections import Counter
from typing import Any
from uuid import uuid4

import pytest

from onefold import Busy, Onefold
from onefold.claims import Replay, Won
from tests.fixtures.place import Place
from tests.fixtures.soak import repetitions
from tests.race.crew import Racer, race_threads, values

STEPS = repetitions(60, soak=3_000)
KEYS = 3
LEVELS = ("read committed", "repeatable read", "serializable")


class RolledBackError(Exception):
    """Undoes an attempt."""


def claim(onefold: Onefold, connection: Any, key: str) -> Any:
    """In the caller's transaction, or leased without one."""
    return (onefold if connection is None else onefold.within(connection)).claim("race", key)


@pytest.mark.parametrize("is_leased", [True, False])
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_key_of_an_open_transaction_is_busy_until_it_ends(
    postgres_place: Place, ending: str, *, is_leased: bool
) -> None:
    key = uuid4().hex
    with postgres_place.open() as onefold, postgres_place.connection() as first:
        first.execute("begin")
        won = claim(onefold, first, key)
        with postgres_place.connection() as second:
            second.execute("begin")
            rival = None if is_leased else second
            during = claim(onefold, rival, key)
            onefold.within(first).keys.settle(won.claim, "first")
            first.execute(ending)
            after = claim(onefold, rival, key)

    assert isinstance(won, Won)
    assert isinstance(during, Busy)
    assert isinstance(after, Replay if ending == "commit" else Won)


@pytest.mark.parametrize("level", LEVELS)
def test_a_claim_of_a_stale_snapshot_is_decided_by_the_index(
    postgres_place: Place, level: str
) -> None:
    known, late = uuid4().hex, uuid4().hex
    with postgres_place.open() as onefold, postgres_place.connection() as caller:
        onefold.keys.settle(claim(onefold, None, known).claim, 1)
        caller.execute(f"begin isolation level {level}")
        caller.execute(f"select count(*) from {postgres_place.table('claim')}")
        onefold.keys.settle(claim(onefold, None, late).claim, 2)

        assert claim(onefold, caller, known).result == 1
        if level == "read committed":
            assert claim(onefold, caller, late).result == 2
        else:
            with pytest.raises(Exception, match="serialize"):
                claim(onefold, caller, late)


def test_a_replay_takes_no_transaction_id_and_no_lock(postgres_place: Place) -> None:
    key = uuid4().hex
    with postgres_place.open() as onefold, postgres_place.connection() as caller:
        onefold.keys.settle(claim(onefold, None, key).claim, 1)
        caller.execute("begin")
        answer = claim(onefold, caller, key)
        number = caller.execute("select pg_current_xact_id_if_assigned()").fetchall()
        locks = caller.execute(
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        ).fetchall()

    assert answer.result == 1
    assert (number, locks) == ([(None,)], [(0,)])


def hammer(racer: Racer, run: str) -> Counter[str]:
    """Claim keys of a small set, leased or joined, and roll every third attempt back."""
    dice, told = random.Random(f"{run} {racer.rank}"), Counter[str]()
    for step in range(STEPS):
        key = f"{run} {step // 10} {dice.randrange(KEYS)}"
        try:
            told[_attempt(racer, key, dice)] += 1
        except Busy:
            told["busy"] += 1
        except RolledBackError:
            told["undone"] += 1
    return told


def _attempt(racer: Racer, key: str, dice: random.Random) -> str:
    is_undone = dice.random() < 1 / 3
    if dice.random() < 1 / 2:
        with racer.place.transaction() as connection:
            return _body(racer, racer.onefold.within(connection), connection, key, is_undone)
    with racer.place.connection() as connection:
        return _body(racer, racer.onefold, connection, key, is_undone)


def _body(racer: Racer, onefold: Any, connection: Any, key: str, is_undone: object) -> str:
    with onefold.once("race", key) as claimed:
        if claimed.replayed:
            assert claimed.result == key
            return "replayed"
        if is_undone:
            raise RolledBackError
        connection.execute(f"insert into {racer.place.effects} (name) values ('{key}')")
        claimed.result = key
    return f"won {key}"


def test_no_key_is_won_twice_and_no_replay_is_wrong(place: Place) -> None:
    with place.connection() as connection:
        connection.execute(f"create table {place.effects} (name text)")

    told = sum(values(race_threads(place, hammer, uuid4().hex)), Counter[str]())

    won = {name.removeprefix("won "): n for name, n in told.items() if name.startswith("won ")}
    assert set(won.values()) == {1}
    assert sorted(place.rows(f"select name from {place.effects}")) == [
        (name,) for name in sorted(won)
    ]
    assert told["replayed"] > 0
