"""Chores that remove many rows: in small transactions, with time for others between them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onefold import NewJob, Onefold
from onefold.operations.statement import run
from onefold.runtime import Command, Pause, Procedure
from onefold.worker import chores
from tests.fixtures.place import Place

BATCH = 3
ROWS = 8
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def pruned(onefold: Onefold) -> Procedure[Any]:
    for job in onefold.enqueue_many([NewJob("email") for _ in range(ROWS)]):
        onefold.cancel(job.id)
    return chores.prune(onefold.context.shards)


def swept(onefold: Onefold) -> Procedure[Any]:
    for number in range(ROWS):
        onefold.claim("once", str(number), retention=timedelta(seconds=1))
        onefold.keys.force_settle("once", str(number))
    return chores.sweep(onefold.context.shards)


def folded(onefold: Onefold) -> Procedure[Any]:
    onefold.enqueue_many([NewJob("email", unique_key="k") for _ in range(ROWS + 1)])
    onefold.keys.why("k")  # it writes the notes that wait
    return chores.fold(onefold.context.shards)


@pytest.mark.parametrize(
    ("chore", "table"), [(pruned, "job"), (swept, "claim"), (folded, "duplicate")]
)
def test_a_chore_pauses_after_every_small_batch(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    chore: Callable[[Onefold], Procedure[Any]],
    table: str,
) -> None:
    monkeypatch.setattr(chores, "SMALL_BATCH", BATCH)
    now = [NOW]
    with place.open(clock=lambda: now[0]) as onefold:
        procedure = chore(onefold)
        now[0] += timedelta(days=365)
        left = [ROWS]

        def perform(step: Command) -> Any:
            answer = onefold.context.runtime.perform(step)
            if isinstance(step, Pause):
                assert 0 < step.seconds <= chores.LONGEST_PAUSE
                left.append(place.rows(f"select count(*) from {{{table}}}")[0][0])
            return answer

        run(procedure, perform)

        # A pause after each batch that was full, and nothing left after the last one.
        assert left == [8, 5, 2]
        assert place.rows(f"select count(*) from {{{table}}}") == [(0,)]
