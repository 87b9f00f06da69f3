"""What happens to queues of the server between two statements, or between two transactions."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from onefold.app.context import Context
from onefold.app.queues import BATCH, DELETE_ROUNDS, Queues
from onefold.errors import QueueNotEmpty
from onefold.model.ids import new_id
from onefold.model.queue import (
    QueueSettings,
    encode_settings,
    new_secret,
    read_settings,
)
from onefold.operations.queues import empty, save
from onefold.operations.statement import Sql
from tests.fixtures.rows import NOW, locked_row
from tests.fixtures.steps import Steps

if TYPE_CHECKING:
    from onefold.databases import Store

SQL = Sql("postgres", notifies=False)
SAID = QueueSettings(endpoint="https://example.com/hook")


def row(settings: object) -> tuple[object, ...]:
    state = (False, None, None, 0, True, False)
    return ("{acme}payments", settings, NOW, NOW, *state, *(None,) * 6)


def test_a_queue_that_somebody_has_just_made_keeps_their_secret() -> None:
    theirs, ours = new_secret(), new_secret()
    stored = encode_settings(QueueSettings(signing_secret=theirs))
    run = Steps(save(SQL, "acme", "payments", SAID, secret=ours))

    run.answer("lock_served_queue")
    made = run.answer("insert_served_queue", []).parameters["settings"]
    run.answer("lock_served_queue", [(stored,)])
    changed = run.answer("update_served_queue").parameters["settings"]
    run.answer("find_gate")
    run.answer("find_served_queues", [row(changed)])

    assert read_settings(made).signing_secret == ours
    assert run.result.signing_secret == theirs


def test_a_queue_that_was_made_and_removed_meanwhile_is_made_after_all() -> None:
    ours = new_secret()
    run = Steps(save(SQL, "acme", "payments", SAID, secret=ours))

    run.answer("lock_served_queue")
    run.answer("insert_served_queue", [])
    run.answer("lock_served_queue")
    made = run.answer("insert_served_queue", [("payments",)]).parameters["settings"]
    run.answer("find_served_queues", [row(made)])

    assert run.result.signing_secret == ours


def test_a_queue_is_emptied_a_batch_at_a_time() -> None:
    ids = [new_id(0), new_id(0)]
    run = Steps(empty(Sql("postgres", shards=4), "payments", limit=2))

    found = run.answer("find_live_jobs", [(job_id, "") for job_id in ids])
    run.answer("lock_deliveries", [locked_row(job_id) for job_id in ids])
    run.answer("delete_jobs", [(job_id, "") for job_id in ids])
    for name in ("delete_duplicates", "delete_tallies", "delete_attempts", "find_job_claims"):
        run.answer(name)

    assert found.parameters == {"shard": 0, "queue": "payments", "limit": 2}
    assert run.result == 2


def test_a_queue_that_is_never_empty_is_left_alone_in_the_end() -> None:
    """The test is the database."""
    store = cast("Store", SimpleNamespace(database=None))
    context: Any = Context(store, cast("Any", None)).for_tenant("acme")
    steps = inspect.unwrap(Queues.delete)(Queues(context), "payments", force=True)
    next(steps)
    for _ in range(DELETE_ROUNDS):
        steps.throw(QueueNotEmpty("payments"))
        steps.send(BATCH)
        steps.send(BATCH - 1)

    with pytest.raises(QueueNotEmpty):
        steps.throw(QueueNotEmpty("payments"))
