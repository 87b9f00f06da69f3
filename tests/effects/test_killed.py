"""A worker that is killed in the middle of `run.transact`: a real SIGKILL.

`tests/kill` kills workers inside of steps and of `run.transaction`.
"""

from typing import Any

import pytest

from tests.effects.deliveries import Deliveries
from tests.faults.callers import kill
from tests.fixtures.colours import Store
from tests.fixtures.connections import Effects

PAY = """
    import sys
    from datetime import UTC, datetime, timedelta
    from onefold import Onefold, Run

    url, schema, where, insert = sys.argv[1:]
    now = datetime(2020, 1, 1, tzinfo=UTC)
    onefold = Onefold(url, schema=schema, clock=lambda: now)
    lease = timedelta(seconds=60)
    (job,) = onefold.deliveries.take(worker="doomed", lease=lease)
    run = Run(onefold.context, job, lease=lease, worker="doomed")

    def wait_for_death():
        print("ready", flush=True)
        sys.stdin.read()

    def pay(tx, number):
        tx.execute(insert)
        if where == "inside":
            wait_for_death()

    run.transact("pay", pay, 1)
    wait_for_death()
"""


@pytest.mark.parametrize("colour", ["sync"])
@pytest.mark.parametrize(("where", "left"), [("inside", []), ("after", [1])])
async def test_f052_an_effect_and_its_record_are_one_commit_wherever_it_is_killed(
    deliveries: Deliveries, store: Store, effects: Effects, where: str, left: list[int]
) -> None:
    deliveries.enqueue()
    kill(PAY, store.url, store.schema, where, effects.insert(1))
    run = deliveries.vanish()
    steps = deliveries.onefold.deliveries.steps(run.target.id)
    assert (effects.numbers, len(steps)) == (left, len(left))

    def pay(tx: Any, number: int) -> None:
        tx.execute(effects.insert(number))

    await run.transact("pay", pay, 1)

    assert effects.numbers == [1]
