"""A worker is killed at each moment of its work: nothing is lost, and nothing is doubled."""

import pytest

from tests.fixtures.proof import repetitions
from tests.kill import audit
from tests.kill.deaths import MOMENTS, RESCUE, Death
from tests.kill.jobs import KINDS, enqueue
from tests.kill.workers import Shop, at_length, until

ROUNDS = repetitions(1, soak=50)
STATEMENTS = repetitions(11, soak=1)
"""Every how many statements a worker dies; in `make soak` before each one."""
LIVES = repetitions(1, soak=4)


@at_length
def test_a_worker_killed_at_any_moment_loses_nothing_and_doubles_nothing(shop: Shop) -> None:
    for _ in range(ROUNDS):
        ids: list[str] = []
        with shop.place.open() as onefold:
            for moment in MOMENTS:
                ids += enqueue(onefold, len(KINDS), queue=moment)

        for moment, death in MOMENTS.items():
            shop.start(death, queues=[moment], chores=False).dies()
        shop.drain(*MOMENTS)

        audit.check(shop.place, shop.ledger, ids)
        shop.clear()


@pytest.mark.prove
@at_length
def test_a_worker_killed_before_any_statement_loses_nothing_and_doubles_nothing(shop: Shop) -> None:
    for _ in range(LIVES):
        ids: list[str] = []
        queues: list[str] = []
        number, is_done = 1, False
        while not is_done:
            queues.append(f"before {number}")
            with shop.place.open() as onefold:
                ids += enqueue(onefold, len(KINDS), queue=queues[-1])
            is_done = _die_before(shop, number, queues[-1])
            number += STATEMENTS
        assert number > len(KINDS)
        shop.drain(*queues)

        audit.check(shop.place, shop.ledger, ids)
        shop.clear()


def _die_before(shop: Shop, number: int, queue: str) -> bool:
    """True where the worker has done all there is before it came to die."""
    worker = shop.start(Death(number=number), queues=[queue])
    left = f"select count(*) from {{job}} where queue = '{queue}' and state in (0, 1)"
    until(
        lambda: not worker.is_alive or shop.place.rows(left) == [(0,)], "for a worker to end or die"
    )
    is_done = worker.is_alive
    if is_done:
        worker.kill()
    return is_done


@pytest.mark.prove
def test_a_worker_killed_in_the_middle_of_a_rescue_keeps_nobody_from_the_next(shop: Shop) -> None:
    with shop.place.open() as onefold:
        ids = enqueue(onefold, len(KINDS))
    shop.start(MOMENTS["when the handler begins"], chores=False).dies()

    shop.start(Death(statement=RESCUE)).dies()
    shop.drain()

    audit.check(shop.place, shop.ledger, ids)
