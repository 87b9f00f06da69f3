"""Enqueue: how a batch is cut into statements, what Citus is asked, and a lost answer."""

from typing import Any

import msgspec

from onefold import Enqueued, NewJob
from onefold.model.claim import Holding
from onefold.model.ids import new_id
from onefold.model.lifecycle import State
from onefold.model.new_job import NewJobRow, Prepared, prepare
from onefold.operations.enqueue import KEEP_HOLDER, enqueue, publish
from onefold.operations.statement import Sql
from onefold.operations.unique_keys import CHUNK, CHUNK_CHARACTERS, chunks_by_shard
from tests.fixtures.rows import NOW
from tests.fixtures.steps import Steps


def new(key: str | None = None, **options: Any) -> Prepared:
    return prepare(NewJob("email", unique_key=key, **options), "", now=NOW)


def test_on_citus_the_notification_is_apart() -> None:
    item = new("k")
    run = Steps(enqueue(Sql("postgres", distributed=True), [item], KEEP_HOLDER))

    run.answer("insert_jobs", [(item.request.id,)])
    bell = run.answer("notify")

    assert bell.rows == [("default",)]
    assert run.result == [Enqueued(item.request.id)]


def test_our_own_batch_on_several_shards_is_inserted_first() -> None:
    """Citus does not route a statement that looks and inserts."""
    items = [new(f"key {number}") for number in range(20)]
    run = Steps(enqueue(Sql("postgres", shards=4, restarts=True), items, KEEP_HOLDER))

    run.asks("insert_jobs")


def test_a_publish_that_is_sent_again_looks_for_itself() -> None:
    again = Sql("postgres", restarts=True, resends=True)

    Steps(publish(again, [new(idempotency_key="p")], KEEP_HOLDER)).asks("insert_claims")


def test_a_publish_key_that_is_free_is_taken_over_whatever_its_job_does() -> None:
    """No call frees one and leaves its result."""
    item, job_id = new(idempotency_key="p"), new_id()
    run = Steps(enqueue(Sql("postgres"), [item], KEEP_HOLDER))

    run.answer("insert_claims", [])
    free = (0, "claim", "owner", int(Holding.FREE), 7, None, 0, None, None, job_id, NOW)
    run.answer("find_claims", [free])
    run.answer("job_states", [(job_id, int(State.RUNNING), 0, NOW, None, NOW)])

    run.asks("take_over_claims")


def test_chunks_end_where_a_shard_ends_or_a_statement_is_full() -> None:
    def on(shard: int, count: int) -> list[NewJobRow]:
        return [msgspec.structs.replace(new().request, shard=shard)] * count

    requests = [*on(0, 1), *on(1, 2 * CHUNK), *on(3, 2)]

    found = [(chunk[0].shard, len(chunk)) for chunk in chunks_by_shard(requests)]
    assert found == [(0, 1), (1, CHUNK), (1, CHUNK), (3, 2)]
    assert list(chunks_by_shard([])) == []


def test_large_payloads_are_cut_into_statements_by_size() -> None:
    half = "x" * (CHUNK_CHARACTERS // 2)
    requests = [msgspec.structs.replace(new().request, payload=half) for _ in range(5)]

    assert [len(chunk) for chunk in chunks_by_shard(requests)] == [2, 2, 1]
