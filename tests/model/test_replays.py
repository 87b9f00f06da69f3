"""Many replays in one call against one call each: any jobs of one key, in any order.

Two tenants live the same lives, on the same database and clock. Then one replays its jobs together,
the other one by one, and nobody can tell the difference.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onefold import Enqueued
from onefold.operations import jobs
from tests.fixtures.proof import repetitions
from tests.model.job_requests import span
from tests.model.store import SHRINKING, Store, moment

TOGETHER = "together"
ONE_BY_ONE = "one by one"


@dataclass(frozen=True)
class Life:
    """A job that asks for the key, how it ends, and how long nothing happens then."""

    unique_while: Literal["queued", "active", "exists"] | None
    unique_for: int | None
    expires_in: int | None
    end: Literal["stay", "cancel", "run", "finish", "bury", "rerun"]
    rest: int


LIVES = st.builds(
    Life,
    unique_while=st.sampled_from([None, None, None, "queued", "active", "exists"]),
    unique_for=st.sampled_from([None, 10, 10, 10, 1000]),
    expires_in=st.sampled_from([None, None, 15]),
    end=st.sampled_from(["stay", "cancel", "run", "finish", "bury", "bury", "bury", "rerun"]),
    rest=st.sampled_from([0, 10, 10, 20]),
)


def live(store: Store, tenant: str, number: int, life: Life) -> None:
    onefold = store.onefold.tenant(tenant)
    first = onefold.enqueue(
        "mail",
        {"n": number},
        queue=tenant,
        unique_key="k",
        unique_while=life.unique_while,
        unique_for=span(life.unique_for),
        expires_at=None if life.expires_in is None else moment(store.now + life.expires_in),
    )
    if life.end == "cancel" and not first.duplicate:
        onefold.cancel(first.id)
    if life.end in {"stay", "cancel"}:
        return
    taken = store.onefold.deliveries.take([tenant], limit=1, worker="w", lease=timedelta(days=1))
    if life.end == "rerun":
        onefold.enqueue(
            "mail", {"n": number + 100}, queue=tenant, unique_key="k", on_duplicate="rerun"
        )
    if life.end == "finish":
        store.onefold.deliveries.finish(taken)
    if life.end in {"bury", "rerun"}:
        store.onefold.deliveries.bury(taken, reason="told")


def numbers(store: Store, tenant: str) -> dict[str, int]:
    """The jobs of a tenant by id: payloads tell which is the same job of the other one."""
    rows = store.rows(f"select id, payload from {{job}} where tenant = '{tenant}'")
    return {str(job_id): int(payload[5:-1]) for job_id, payload in rows}


def stored(store: Store, tenant: str) -> list[tuple[Any, ...]]:
    names = numbers(store, tenant)
    rows = store.rows(
        "select id, state, attempt, fence, generation, run_at, keep_until, expires_at, reason,"
        " unique_states, unique_until, yielded, next is not null"
        f" from {{job}} where tenant = '{tenant}'"
    )
    return sorted((names[str(job_id)], *rest) for job_id, *rest in rows)


def replay_together(store: Store, ids: list[str]) -> list[Enqueued]:
    return store.onefold.context.store.transact(
        lambda sql: jobs.replay(sql, TOGETHER, ids, fresh=True)
    )


def replay_one_by_one(store: Store, ids: list[str]) -> list[Enqueued]:
    onefold = store.onefold.tenant(ONE_BY_ONE)
    return [onefold.replay(job_id, fresh=True) for job_id in ids]


def told(store: Store, tenant: str, answers: list[Enqueued]) -> list[tuple[Any, ...]]:
    names = numbers(store, tenant)
    return [(names[answer.id], answer.duplicate, answer.state) for answer in answers]


@pytest.mark.timeout(SHRINKING)
def test_many_replays_come_to_what_one_after_the_other_does(store: Store) -> None:
    @settings(max_examples=repetitions(30, soak=5000))
    @given(lives=st.lists(LIVES, min_size=2, max_size=7), data=st.data())
    def comes_to_the_same(lives: list[Life], data: st.DataObject) -> None:
        store.clear()
        for number, life in enumerate(lives):
            live(store, TOGETHER, number, life)
            live(store, ONE_BY_ONE, number, life)
            store.now += life.rest
        ids = {number: job_id for job_id, number in numbers(store, TOGETHER).items()}
        twins = {number: job_id for job_id, number in numbers(store, ONE_BY_ONE).items()}
        order = data.draw(st.permutations(sorted(ids)))

        answers = replay_together(store, [ids[number] for number in order])
        expected = replay_one_by_one(store, [twins[number] for number in order])

        assert told(store, TOGETHER, answers) == told(store, ONE_BY_ONE, expected)
        assert stored(store, TOGETHER) == stored(store, ONE_BY_ONE)

    comes_to_the_same()
