"""Why was I deduplicated? Who has a key, since when, until when, on which surface."""

from datetime import timedelta
from typing import Any

import pytest

from onefold.claims import Won
from onefold.errors import ConflictingOptions, InvalidInput
from onefold.model.lifecycle import Retention
from onefold.model.stored_key import KeyHolder, Why
from tests.fixtures.colours import Clock, Coloured
from tests.fixtures.place import Place

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


async def only(onefold: Coloured, key: str = "k", **options: Any) -> KeyHolder:
    found: Why = await onefold.keys.why(key, **options)
    (holder,) = found.holders
    return holder


async def claimed(onefold: Coloured, scope: str = "import", **options: Any) -> Any:
    answer = await onefold.claim(scope, "k", **options)
    assert isinstance(answer, Won)
    return answer.claim


async def test_a_job_holds_its_unique_key(onefold: Coloured, clock: Clock) -> None:
    began = clock.now
    job = await onefold.enqueue("mail", {"to": 1}, unique_key="k")
    clock.advance(SECOND)
    await onefold.enqueue("mail", {"to": 2}, unique_key="k", request_id="req-7")

    holder = await only(onefold)

    assert (holder.surface, holder.scope, holder.key) == ("job", "mail", "k")
    assert (holder.state, holder.unique_while, holder.takeover) == ("ready", "active", None)
    assert (holder.since, holder.until, holder.fence) == (began, None, 0)
    assert holder.job is not None
    assert (holder.job.id, holder.job.kind, holder.job.queue) == (job.id, "mail", "default")
    noted = holder.suppressed
    assert (noted.count, noted.first_at, noted.last_at) == (1, clock.now, clock.now)
    assert noted.recent[0].request_id == "req-7"


async def test_a_window_says_when_it_ends_and_a_job_whose_own_time_is_over_holds_nothing(
    onefold: Coloured, clock: Clock
) -> None:
    await onefold.enqueue("mail", unique_key="k", unique_for=HOUR)
    await onefold.enqueue("mail", unique_key="brief", expires_at=clock.now + HOUR)

    holder, brief = await only(onefold), await only(onefold, "brief")
    clock.advance(HOUR)

    assert (holder.unique_while, holder.until) == (None, clock.now)
    assert brief.state == "ready"
    for key in ("k", "brief", "nobody's"):
        found = await onefold.keys.why(key)
        assert (found.key, list(found), len(found)) == (key, [], 0)


async def test_a_tombstone_is_still_a_holder(onefold: Coloured, clock: Clock) -> None:
    retention = Retention(cancelled=timedelta(0))
    job = await onefold.enqueue("mail", unique_key="k", unique_for=DAY, retention=retention)
    await onefold.cancel(job.id)
    clock.advance(HOUR)
    await onefold.deliveries.prune()

    holder = await only(onefold)

    assert await onefold.get(job.id) is None
    assert holder.job is not None
    assert (holder.job.id, holder.state) == (job.id, "cancelled")


async def test_a_publish_key_points_to_its_job(onefold: Coloured, clock: Clock) -> None:
    job = await onefold.enqueue("mail", {"to": 1}, queue="slow", idempotency_key="k")
    await onefold.enqueue("mail", {"to": 1}, queue="slow", idempotency_key="k", request_id="req-1")

    holder = await only(onefold)

    assert (holder.surface, holder.scope, holder.state) == ("publish", "slow", "settled")
    assert (holder.until, holder.takeover) == (clock.now + DAY, None)
    assert holder.job is not None
    assert (holder.job.id, holder.job.state) == (job.id, "ready")
    assert [note.request_id for note in holder.suppressed.recent] == ["req-1"]


async def test_a_publish_key_outlives_its_job(onefold: Coloured) -> None:
    job = await onefold.enqueue("mail", idempotency_key="k")
    await onefold.delete(job.id)

    holder = await only(onefold, payload={})

    assert holder.job is not None
    assert (holder.job.id, holder.job.state, holder.job.kind) == (job.id, None, None)
    assert holder.matches is None


async def test_a_claim_is_held_then_settled_then_forgotten(onefold: Coloured, clock: Clock) -> None:
    claim = await claimed(onefold, lease=HOUR, retention=DAY, fingerprint="print")

    held = await only(onefold)
    await onefold.keys.settle(claim, 1)
    settled = await only(onefold)
    clock.advance(DAY)
    over = await onefold.keys.why("k")

    assert (held.surface, held.scope, held.state) == ("once", "import", "held")
    assert (held.until, held.fence, held.takeover) == (held.since + HOUR, claim.fence, "refuse")
    assert held.fingerprint == "print"
    assert (settled.state, settled.until) == ("settled", settled.since + DAY)
    assert not over.holders


@pytest.mark.parametrize(("takeover", "state"), [("refuse", "unknown"), ("rerun", "abandoned")])
async def test_an_attempt_that_vanished_is_told_as_such(
    onefold: Coloured, clock: Clock, takeover: str, state: str
) -> None:
    await claimed(onefold, lease=HOUR, takeover=takeover)
    clock.advance(HOUR)

    assert (await only(onefold)).state == state


async def test_surfaces_and_scopes_narrow_the_look(onefold: Coloured) -> None:
    for surface in ("form", "http", "own"):
        for scope in ("alice", "bob"):
            await claimed(onefold, scope, surface=surface)

    everybody = await onefold.keys.why("k")
    http = await onefold.keys.why("k", surface="http")
    bobs = await onefold.keys.why("k", scope="bob")
    one = await only(onefold, surface="own", scope="alice")

    assert len(everybody) == 6
    assert [(holder.surface, holder.scope) for holder in http] == [
        ("http", "alice"),
        ("http", "bob"),
    ]
    assert [holder.surface for holder in bobs] == ["form", "http", "own"]
    assert (one.surface, one.scope) == ("own", "alice")


async def test_keys_of_chores_schedules_and_steps_are_shown_to_who_asks_for_them(
    onefold: Coloured,
) -> None:
    await onefold.schedules.save("tick", "* * * * *", kind="mail")
    claim = (await onefold.claim("s", "x")).claim
    async with onefold.lock("k"):
        assert (await only(onefold)).surface == "lock"
    assert claim is not None
    assert not (await onefold.keys.why("k")).holders


async def test_a_tenant_sees_its_own_holders_alone(onefold: Coloured) -> None:
    await onefold.tenant("acme").enqueue("mail", unique_key="k")
    await onefold.tenant("acme").claim("s", "k")

    assert not (await onefold.keys.why("k")).holders
    assert not (await onefold.tenant("other").keys.why("k")).holders
    assert len(await onefold.tenant("acme").keys.why("k")) == 2


async def test_a_request_is_compared_with_the_one_that_the_key_stands_for(
    onefold: Coloured,
) -> None:
    await onefold.enqueue("mail", {"to": 1, "cc": 2}, unique_key="k")
    await onefold.enqueue("mail", {"to": 1, "cc": 2}, idempotency_key="k")
    await claimed(onefold, fingerprint="print")
    await claimed(onefold, "plain")

    async def matches(**question: Any) -> list[bool | None]:
        return [holder.matches for holder in await onefold.keys.why("k", **question)]

    # Of job, once (import, plain) and publish.
    assert await matches() == [None, None, None, None]
    assert await matches(payload={"cc": 2, "to": 1}) == [True, None, None, True]
    assert await matches(payload=None) == [False, None, None, False]
    assert await matches(fingerprint="print") == [False, True, None, False]


async def test_bad_input_is_refused(onefold: Coloured) -> None:
    for options in ({"surface": "a,b"}, {"scope": 7}, {"fingerprint": ""}, {"payload": object()}):
        with pytest.raises(InvalidInput):
            await onefold.keys.why("k", **options)
    with pytest.raises(InvalidInput):
        await onefold.keys.why("")
    with pytest.raises(ConflictingOptions):
        await onefold.keys.why("k", fingerprint="print", payload=1)


def test_holders_are_found_on_every_shard(spread: Place) -> None:
    with spread.open() as onefold:
        for number in range(10):
            onefold.enqueue(f"kind-{number}", unique_key="k")
            onefold.enqueue("mail", queue=f"queue-{number}", idempotency_key="k")
            onefold.claim(f"scope-{number}", "k")

        found = onefold.keys.why("k")

    surfaces = [holder.surface for holder in found]
    assert [surfaces.count(name) for name in ("job", "once", "publish")] == [10, 10, 10]
    assert all(holder.job and holder.job.kind for holder in found if holder.surface == "publish")
