"""One scenario for every connection that `within` accepts: the caller's rows and ours, as one."""

import pytest

from onefold import AlreadyEnqueued, Busy, InvalidInput, KeyReused, NewJob
from onefold.claims import Won
from tests.fixtures.colours import Coloured, Store
from tests.fixtures.connection import Connection, Kind
from tests.fixtures.connections import Effects
from tests.fixtures.proof import every_kind


async def begun(kind: Kind, store: Store) -> Connection:
    connection = await kind.connect(store)
    await connection.begin()
    return connection


# --- begin, commit, rollback, savepoint: with each kind of connection -----------------------------


@every_kind
async def test_what_is_committed_is_there_and_the_callers_settings_are_as_they_were(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection = await begun(kind, store)
    names = ("row_factory", "text_factory", "cursor_factory", "isolation_level", "autocommit")
    before = {name: getattr(connection.raw, name, None) for name in names}
    await connection.execute(effects.insert(7))

    enqueued = await onefold.within(connection.raw).enqueue(
        "invoice.email", {"id": 7, "name": "zwölf %s :name $1"}, unique_key="inv:7"
    )
    async with onefold.within(connection.raw).once("import", "sha") as claim:
        claim.result = {"rows": [1, "zwölf"]}
    assert {name: getattr(connection.raw, name, None) for name in names} == before
    await connection.commit()

    assert enqueued.inserted
    job = await onefold.get(enqueued.id)
    assert job.payload == {"id": 7, "name": "zwölf %s :name $1"}
    assert effects.numbers == [7]
    assert (await onefold.claim("import", "sha")).result == {"rows": [1, "zwölf"]}


@every_kind
async def test_one_connection_serves_one_transaction_after_another(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    """Whoever speaks first in them: nothing that goes through `within` commits by itself."""
    connection = await kind.connect(store)
    for number, end in enumerate(("commit", "rollback", "commit", "rollback")):
        await connection.begin()
        within = onefold.within(connection.raw)
        if number < 2:
            await connection.execute(effects.insert(number))
        await within.enqueue("email", unique_key=f"{number}", idempotency_key=f"{number}")
        await within.enqueue("email", unique_key=f"{number}", on_duplicate="replace")
        await within.claim("import", f"sha {number}")
        if number >= 2:
            await connection.execute(effects.insert(number))
        await getattr(connection, end)()

    assert effects.numbers == [0, 2]
    assert effects.jobs == [("email", "0"), ("email", "2")]
    again = await onefold.enqueue("email", unique_key="3", idempotency_key="3")
    assert again.inserted


@every_kind
async def test_a_savepoint_takes_or_keeps_what_was_done_since(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    connection = await begun(kind, store)
    within = onefold.within(connection.raw)
    await connection.execute(effects.insert(1))

    await connection.savepoint()
    await within.enqueue("email", unique_key="kept", idempotency_key="J")
    await connection.release_savepoint()
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
    assert [key for key, _ in effects.claims] == ["J", "K", "sha"]


# --- what is said within it -----------------------------------------------------------------------


async def test_our_errors_can_be_caught_and_the_transaction_goes_on(
    kind: Kind, store: Store, onefold: Coloured, effects: Effects
) -> None:
    await onefold.enqueue("email", {"to": 1}, unique_key="held", idempotency_key="K")
    await onefold.claim("import", "busy")
    connection = await begun(kind, store)
    within = onefold.within(connection.raw)
    await connection.execute(effects.insert(1))

    with pytest.raises(AlreadyEnqueued) as refused:
        await within.enqueue("email", unique_key="held", on_duplicate="raise")
    with pytest.raises(KeyReused):
        await within.enqueue("email", {"to": 2}, unique_key="held", on_mismatch="raise")
    with pytest.raises(KeyReused):
        await within.enqueue("email", {"to": 2}, idempotency_key="K", on_mismatch="raise")
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

    assert refused.value.__cause__ is None, "an answer, and no error of the database"
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
    tenant = onefold.tenant("acme").within(connection.raw)
    foreign = await tenant.enqueue("email")
    assert await within.get(foreign.id) is None
    assert (await tenant.get(foreign.id)).tenant == "acme"
    await connection.rollback()

    assert (await onefold.get(job.id)).state == "ready"
