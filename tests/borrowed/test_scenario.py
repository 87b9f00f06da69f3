"""One scenario for every connection that `within` accepts: the caller's rows and ours, as one."""

import pytest

from onefold import AlreadyEnqueued, Busy, Conflict, InvalidInput, KeyReused, NewJob
from onefold.claims import Replay, Won
from tests.fixtures.colours import Coloured, Store
from tests.fixtures.connection import Connection, Kind
from tests.fixtures.connections import Effects


async def begun(kind: Kind, store: Store) -> Connection:
    connection = await kind.connect(store)
    await connection.begin()
    return connection


async def test_a_job_is_enqueued_with_the_callers_rows(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection = await begun(kind, store)
    await connection.execute(effects.insert(7))

    enqueued = await onefold.within(connection.raw).enqueue(
        "invoice.email", {"id": 7, "name": "zwölf %s :name $1"}, unique_key="inv:7"
    )
    await connection.commit()

    assert enqueued.inserted
    job = await onefold.get(enqueued.id)
    assert job.payload == {"id": 7, "name": "zwölf %s :name $1"}
    assert effects.numbers == [7]


async def test_a_job_alone_is_enqueued(kind: Kind, store: Store, onefold: Coloured) -> None:
    """The caller has run no statement yet, so none of its own has opened the transaction."""
    connection = await begun(kind, store)

    enqueued = await onefold.within(connection.raw).enqueue("email", {"to": 1})
    await connection.commit()

    assert (await onefold.get(enqueued.id)).kind == "email"


async def test_a_rollback_leaves_nothing(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection = await begun(kind, store)
    await connection.execute(effects.insert(7))
    within = onefold.within(connection.raw)
    await within.enqueue("email", unique_key="k", idempotency_key="K")
    await within.claim("import", "sha")

    await connection.rollback()

    assert (effects.numbers, effects.jobs, effects.claims) == ([], [], [])
    again = await onefold.enqueue("email", unique_key="k", idempotency_key="K")
    assert again.inserted


async def test_a_rollback_leaves_nothing_where_our_statement_was_the_first(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    """Nothing that goes through `within` commits by itself."""
    connection = await begun(kind, store)
    within = onefold.within(connection.raw)
    await within.enqueue_many([NewJob("email", unique_key=f"{n}") for n in range(3)])
    await within.enqueue("email", unique_key="0", on_duplicate="replace")
    await connection.execute(effects.insert(7))

    await connection.rollback()

    assert (effects.numbers, effects.jobs) == ([], [])


async def test_a_duplicate_is_answered_with_its_holder(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    holder = await onefold.enqueue("email", {"to": 1}, unique_key="k")
    connection = await begun(kind, store)
    within = onefold.within(connection.raw)

    same = await within.enqueue("email", {"to": 1}, unique_key="k")
    other = await within.enqueue("email", {"to": 2}, unique_key="k")
    new = await within.enqueue("email", {"to": 3}, unique_key="another")
    again = await within.enqueue("email", {"to": 3}, unique_key="another")
    await connection.execute(effects.insert(7))
    await connection.commit()

    assert (same.id, same.duplicate, same.mismatch) == (holder.id, True, False)
    assert (other.id, other.duplicate, other.mismatch) == (holder.id, True, True)
    assert new.inserted
    assert (again.id, again.duplicate) == (new.id, True)
    assert effects.numbers == [7]


async def test_a_publish_key_is_answered_with_its_job(
    kind: Kind, store: Store, onefold: Coloured
) -> None:
    first = await onefold.enqueue("pay", {"x": 1}, idempotency_key="K")
    connection = await begun(kind, store)
    within = onefold.within(connection.raw)

    known = await within.enqueue("pay", {"x": 1}, idempotency_key="K")
    new = await within.enqueue("pay", {"x": 1}, idempotency_key="L")
    again = await within.enqueue("pay", {"x": 2}, idempotency_key="L")
    await connection.commit()

    assert (known.id, known.duplicate) == (first.id, True)
    assert new.inserted
    assert (again.id, again.duplicate, again.mismatch) == (new.id, True, True)
    assert (await onefold.enqueue("pay", {"x": 1}, idempotency_key="L")).id == new.id


async def test_a_batch_answers_for_each_item(kind: Kind, store: Store, onefold: Coloured) -> None:
    holder = await onefold.enqueue("digest", unique_key="u1")
    connection = await begun(kind, store)

    jobs = [NewJob("digest", unique_key=f"u{n % 3}") for n in range(6)]
    answers = await onefold.within(connection.raw).enqueue_many(jobs)
    await connection.commit()

    assert (answers.inserted, answers.skipped) == (2, 4)
    assert [answer.duplicate for answer in answers] == [False, True, False, True, True, True]
    assert answers[1].id == answers[4].id == holder.id
    assert answers[3].id == answers[0].id


async def test_a_claim_joins_the_transaction(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection = await begun(kind, store)
    within = onefold.within(connection.raw)

    async with within.once("import", "sha", fingerprint="one") as claim:
        await connection.execute(effects.insert(7))
        claim.result = {"rows": [1, "zwölf"]}
    async with within.once("import", "sha", fingerprint="one") as again:
        assert again.result == {"rows": [1, "zwölf"]}
    with pytest.raises(KeyReused):
        await within.once("import", "sha", fingerprint="two").__aenter__()
    await connection.commit()

    assert claim.guarantee == "exactly once"
    assert isinstance(await onefold.claim("import", "sha"), Replay)
    assert effects.numbers == [7]


async def test_a_savepoint_takes_what_was_done_since(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection = await begun(kind, store)
    within = onefold.within(connection.raw)
    await connection.execute(effects.insert(1))
    kept = await within.enqueue("email", unique_key="kept")

    await connection.savepoint()
    await connection.execute(effects.insert(2))
    gone = await within.enqueue("email", unique_key="gone", idempotency_key="K")
    await within.claim("import", "sha")
    await connection.rollback_to_savepoint()

    again = await within.enqueue("email", unique_key="gone", idempotency_key="K")
    assert isinstance(await within.claim("import", "sha"), Won)
    await connection.commit()

    assert again.inserted
    assert again.id != gone.id
    assert effects.numbers == [1]
    assert effects.jobs == [("email", "gone"), ("email", "kept")]
    assert (await onefold.get(kept.id)).kind == "email"


async def test_a_savepoint_that_is_released_keeps_what_was_done_since(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection = await begun(kind, store)
    within = onefold.within(connection.raw)
    await connection.execute(effects.insert(1))

    await connection.savepoint()
    await within.enqueue("email", unique_key="kept", idempotency_key="K")
    await connection.release_savepoint()
    await connection.commit()

    assert effects.numbers == [1]
    assert effects.jobs == [("email", "kept")]
    assert [key for key, _ in effects.claims] == ["K"]


async def test_our_errors_can_be_caught_and_the_transaction_goes_on(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    await onefold.enqueue("email", {"to": 1}, unique_key="held", idempotency_key="K")
    await onefold.claim("import", "busy")
    connection = await begun(kind, store)
    within = onefold.within(connection.raw)
    await connection.execute(effects.insert(1))

    with pytest.raises(AlreadyEnqueued):
        await within.enqueue("email", unique_key="held", on_duplicate="raise")
    with pytest.raises(KeyReused):
        await within.enqueue("email", {"to": 2}, unique_key="held", on_mismatch="raise")
    with pytest.raises(KeyReused):
        await within.enqueue("email", {"to": 2}, idempotency_key="K", on_mismatch="raise")
    with pytest.raises(InvalidInput):
        await within.enqueue("", {})
    with pytest.raises(InvalidInput):
        await within.enqueue("email", {"to": float("nan")})
    with pytest.raises(Busy):
        await within.once("import", "busy").__aenter__()
    batch = [
        NewJob("email", unique_key="new", idempotency_key="N"),
        NewJob("email", unique_key="held"),
    ]
    with pytest.raises(AlreadyEnqueued) as caught:
        await within.enqueue_many(batch, on_duplicate="raise")
    await connection.execute(effects.insert(2))
    last = await within.enqueue("email", unique_key="last")
    await connection.commit()

    assert caught.value.item == 1
    assert last.inserted
    assert effects.numbers == [1, 2]
    assert effects.jobs == [("email", "held"), ("email", "last")], "nothing of the failed batch"
    assert [key for key, _ in effects.claims] == ["K", "busy"]


async def test_jobs_are_found_cancelled_and_replayed_in_the_transaction(
    kind: Kind, store: Store, onefold: Coloured
) -> None:
    job = await onefold.enqueue("email", {"to": 1}, unique_key="k")
    connection = await begun(kind, store)
    within = onefold.within(connection.raw)

    assert (await within.get(job.id)).payload == {"to": 1}
    assert [found.id for found in await within.find(kind="email")] == [job.id]
    assert await within.cancel(job.id)
    assert (await within.get(job.id)).state == "cancelled"
    replayed = await within.replay(job.id)
    assert replayed.id == job.id
    assert await within.delete(job.id)
    assert await within.get(job.id) is None
    await connection.rollback()

    assert (await onefold.get(job.id)).state == "ready"


async def test_one_connection_serves_one_transaction_after_another(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection = await kind.connect(store)
    for number, end in enumerate(("commit", "rollback", "commit")):
        await connection.begin()
        await connection.execute(effects.insert(number))
        await onefold.within(connection.raw).enqueue("email", unique_key=f"{number}")
        await getattr(connection, end)()

    assert effects.numbers == [0, 2]
    assert effects.jobs == [("email", "0"), ("email", "2")]


async def test_a_tenant_is_within_too(kind: Kind, store: Store, onefold: Coloured) -> None:
    connection = await begun(kind, store)

    enqueued = await onefold.tenant("acme").within(connection.raw).enqueue("email")
    await connection.commit()

    assert await onefold.get(enqueued.id) is None
    assert (await onefold.tenant("acme").get(enqueued.id)).tenant == "acme"


async def test_the_callers_settings_are_as_they_were(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection = await begun(kind, store)
    names = ("row_factory", "text_factory", "cursor_factory", "isolation_level", "autocommit")
    before = {name: getattr(connection.raw, name, None) for name in names}

    await onefold.within(connection.raw).enqueue("email", unique_key="k")
    await onefold.within(connection.raw).claim("import", "sha")

    assert {name: getattr(connection.raw, name, None) for name in names} == before
    await connection.rollback()


async def test_a_conflict_is_an_answer_and_no_error_of_the_database(
    kind: Kind, store: Store, onefold: Coloured
) -> None:
    """The caller sees ours only: a `Conflict`, raised after the statements went well."""
    await onefold.enqueue("email", unique_key="held")
    connection = await begun(kind, store)

    with pytest.raises(Conflict) as caught:
        await onefold.within(connection.raw).enqueue(
            "email", unique_key="held", on_duplicate="raise"
        )

    assert caught.value.__cause__ is None
    await connection.rollback()
