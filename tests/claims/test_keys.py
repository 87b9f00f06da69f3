"""What an operator sees of keys, and how they are erased."""

from datetime import timedelta
from typing import Any

import pytest

from onefold import Erased, KeyPage, Limit, Onefold
from onefold.claims import Claim, Won
from onefold.model.checks import qualified
from onefold.model.queue import QueueSettings
from onefold.model.unique import fingerprint
from tests.fixtures.colours import Clock, Colour, Coloured, refused_field
from tests.fixtures.place import Place

HOUR = timedelta(hours=1)


async def claimed(
    onefold: Coloured, key: str, scope: str = "alice", surface: str = "http", **options: Any
) -> Claim:
    answer = await onefold.claim(scope, key, surface=surface, **options)
    assert isinstance(answer, Won)
    return answer.claim


async def places(onefold: Coloured, **filters: Any) -> list[str]:
    page: KeyPage = await onefold.keys.find(**filters)
    return [key.key for key in page]


async def test_a_key_says_who_has_it_since_when_and_what_became_of_it(
    onefold: Coloured, clock: Clock
) -> None:
    await claimed(onefold, "held", lease=HOUR)
    await onefold.keys.settle(await claimed(onefold, "settled"), {"status": 201})
    await onefold.keys.settle(await claimed(onefold, "expired", retention=timedelta(minutes=1)))
    await onefold.keys.release(await claimed(onefold, "free"))
    await claimed(onefold, "unknown")
    await claimed(onefold, "abandoned", takeover="rerun")
    clock.advance(timedelta(minutes=2))

    page = await onefold.keys.find(surface="http")

    assert {key.key: key.state for key in page} == {
        state: state for state in ("abandoned", "expired", "free", "held", "settled", "unknown")
    }
    for state in ("abandoned", "expired", "free", "held", "settled", "unknown"):
        assert await places(onefold, state=state) == [state]
    (held,) = await onefold.keys.find(key="held")
    assert (held.tenant, held.surface, held.scope, held.takeover) == ("", "http", "alice", "refuse")
    assert held.since == clock.now - timedelta(minutes=2)
    assert held.lease_until == held.since + HOUR
    assert (held.settled_at, held.expires_at) == (None, None)


async def test_what_is_stored_is_shown_to_who_asks_for_it_alone(onefold: Coloured) -> None:
    await onefold.keys.settle(await claimed(onefold, "k"), {"secret": 7})
    job = await onefold.enqueue("work", {}, idempotency_key="p")

    hidden = await onefold.keys.find()
    shown = await onefold.keys.find(results=True)

    assert [key.result for key in hidden] == [None, None]
    assert [key.result for key in shown] == [{"secret": 7}, job.id]


PLACES = [
    (surface, scope, key)
    for surface in ("form", "http", "webhook")
    for scope in ("", "a", "a\n", "ä", "\U0010ffff", "\U0010ffff\U0010ffff")
    for key in ("1", "10", "2", "\U0010ffff")
]


QUESTIONS: list[dict[str, str]] = [
    {},
    {"surface": "http"},
    {"surface": "none"},
    {"scope": "a"},
    {"key": "2"},
    {"state": "free"},
    {"scope": "ä", "state": "held"},
    {"surface": "webhook", "scope": "\U0010ffff"},
    {"surface": "form", "key": "10"},
    {"surface": "form", "scope": "", "key": "2", "state": "held"},
]


async def test_page_after_page_has_every_key_that_is_meant_once(onefold: Coloured) -> None:
    said: list[dict[str, str]] = []
    for number, (surface, scope, key) in enumerate(PLACES):
        claim = await claimed(onefold, key, scope=scope, surface=surface)
        if number % 3 == 0:
            await onefold.keys.release(claim)
        state = "held" if number % 3 else "free"
        said.append({"surface": surface, "scope": scope, "key": key, "state": state})

    for filters in QUESTIONS:
        found: list[dict[str, str]] = []
        after = None
        while True:
            page: KeyPage = await onefold.keys.find(limit=5, after=after, **filters)
            assert len(page) <= 5
            names = ("surface", "scope", "key", "state")
            found += [{name: getattr(one, name) for name in names} for one in page]
            if (after := page.next) is None:
                break
        assert found == [one for one in said if filters.items() <= one.items()], filters


async def test_a_page_goes_on_behind_a_place_of_another_surface(onefold: Coloured) -> None:
    for surface in ("form", "http", "webhook"):
        await claimed(onefold, "k", surface=surface)
    first = await onefold.keys.find(limit=2)

    assert await onefold.keys.find(surface="form", after=first.next) == KeyPage((), None)
    assert await places(onefold, surface="webhook", after=first.next) == ["k"]


BAD: list[tuple[str, dict[str, Any]]] = [
    ("limit", {"limit": 0}),
    ("limit", {"limit": True}),
    ("after", {"after": "x"}),
    ("after", {"after": '["\\u0000", "", ""]'}),
    ("state", {"state": "gone"}),
    ("surface", {"surface": ""}),
    ("scope", {"scope": 7}),
    ("key", {"key": ""}),
    ("results", {"results": 1}),
    ("colour", {"colour": "red"}),
]


BAD_ERASES: list[tuple[str, dict[str, Any]]] = [
    ("erase", {}),
    ("erase", {"key": "k", "tenant": "t"}),
    ("surface", {"surface": "http"}),
    ("surface", {"surface": "publish", "key": "k"}),
    ("surface", {"surface": "step", "scope": "s"}),
    ("scope", {"scope": 7}),
]


async def test_a_bad_question_and_an_erase_that_is_not_clear_are_refused_by_name(
    onefold: Coloured,
) -> None:
    for call, bad in ((onefold.keys.find, BAD), (onefold.keys.erase, BAD_ERASES)):
        for field, options in bad:
            assert await refused_field(call, **options) == field, options


# --- erase ----------------------------------------------------------------------------------------


async def test_h193_all_keys_of_a_scope_are_erased_on_every_surface_or_on_one(
    onefold: Coloured,
) -> None:
    for surface in ("http", "form", "webhook"):
        await onefold.keys.settle(await claimed(onefold, surface, surface=surface), "stored")
    await claimed(onefold, "another's", scope="alice2")
    await claimed(onefold, "of a route", scope="alice\nPOST /payments", surface="http")
    await claimed(onefold.tenant("acme"), "tenant's")

    assert (await onefold.keys.erase(scope="alice", surface="form")).claims == 1
    assert await places(onefold) == ["http", "of a route", "another's", "webhook"]
    assert (await onefold.keys.erase(scope="alice")).claims == 3
    assert await places(onefold) == ["another's"]
    assert await places(onefold.tenant("acme")) == ["tenant's"]


async def test_a_scope_that_is_too_long_is_found_by_its_digest(onefold: Coloured) -> None:
    principal = "p" * 600
    await claimed(onefold, "k", scope=f"digest:{fingerprint(principal)}")

    assert await places(onefold, scope=principal) == ["k"]
    assert (await onefold.keys.erase(scope=principal)).claims == 1


async def test_a_key_is_erased_on_one_surface_and_its_jobs_stay(onefold: Coloured) -> None:
    await claimed(onefold, "k")
    await claimed(onefold, "k", surface="form")
    await onefold.enqueue("work", {}, unique_key="k")

    erased = await onefold.keys.erase(key="k", surface="http")

    assert (erased.claims, erased.jobs) == (1, 0)
    assert [key.surface for key in await onefold.keys.find()] == ["form"]
    assert ((await onefold.keys.erase(key="k")).claims, len(await onefold.find())) == (1, 0)


async def test_what_belongs_to_jobs_and_locks_is_not_of_a_scope(onefold: Coloured) -> None:
    await onefold.enqueue("work", {}, idempotency_key="p", queue="alice")
    async with onefold.lock("alice"):
        assert (await onefold.keys.erase(scope="alice")).claims == 0
        assert (await onefold.keys.erase(scope="")).claims == 0


@pytest.mark.parametrize("owner", ["acme", ""])
async def test_an_erased_tenant_leaves_only_api_keys_that_are_revoked(
    spread: Place, colour: Colour, clock: Clock, owner: str
) -> None:
    onefold = Coloured(spread.open(clock=clock), colour)
    tables = [spread.table(name) for name in ("api_key", "served_queue")]
    await onefold.queues.set_limits("shared", group_limit=Limit(rate="1/d"))
    texts: dict[str, str] = {}
    for tenant, word in ((owner, "acme"), ("other", "other")):
        calls = onefold.tenant(tenant) if tenant else onefold
        await calls.queues.save(f"{word} own", QueueSettings(concurrency=9))
        await calls.queues.set_limits(f"{word} own", group_limit=Limit(rate="1/d"))
        if tenant:
            await calls.queues.pause("only paused")
        await calls.schedules.save(f"{word} nightly", "0 3 * * *", kind="report")
        await claimed(calls, f"{word} key")
        for queue in (qualified(tenant, f"{word} own"), "shared"):
            for number in range(2):
                key = f"{word} {number}"
                await calls.enqueue("work", word, queue=queue, group_key=word, unique_key=key)
            taken = await onefold.deliveries.take_limited(queue, worker="w", lease=HOUR)
            await calls.deliveries.acknowledge(taken.jobs[0].id)
        new = await onefold.api_keys.create(tenant, scopes=["work"], name=f"{word}'s laptop")
        texts[word] = new.text
    before = spread.contents(*tables)

    erased = await onefold.keys.erase(tenant=owner)

    assert erased == Erased(jobs=3, claims=1, schedules=1, queues=1, api_keys=1)
    after = spread.contents(*tables)
    left = {table: [row for row in rows if "acme" in repr(row)] for table, rows in after.items()}
    (key_row,) = left.pop(tables[0]) if owner else [(0, "", "", "")]
    assert (key_row[3], [*filter(None, left.values())]) == ("", [])
    assert (await onefold.api_keys.check(texts["acme"])).key is None
    assert await onefold.keys.erase(tenant=owner) == Erased()
    # Nobody else has lost anything: what the process has counted is written by the erase.
    assert (await onefold.tenant("other").statistics.read()).total.completed == 1
    assert (await onefold.api_keys.check(texts["other"])).key is not None
    for table, rows in before.items():
        others = [row for row in rows if "other" in repr(row) or "shared" in row]
        assert all(row in after[table] for row in others if "acme" not in repr(row)), table
    await onefold.close()


# --- the sweep ------------------------------------------------------------------------------------


async def test_h184_a_sweep_forgets_answers_whose_time_is_over_and_nothing_in_flight(
    onefold: Coloured, clock: Clock
) -> None:
    for surface in ("http", "form", "webhook"):
        over = await claimed(onefold, "over", surface=surface, retention=HOUR)
        await onefold.keys.settle(over, "stored")
        kept = await claimed(onefold, "kept", surface=surface, retention=HOUR * 5)
        await onefold.keys.settle(kept, "stored")
        await claimed(onefold, "unknown", surface=surface, retention=HOUR)
    clock.advance(HOUR)

    assert await onefold.deliveries.sweep() == 3
    assert set(await places(onefold)) == {"kept", "unknown"}


def test_keys_of_several_shards_are_one_list(sqlite_url: str) -> None:
    with Onefold(sqlite_url, shards=4) as onefold:
        onefold.migrate()
        wanted = [f"k{number:02}" for number in range(20)]
        for key in wanted:
            onefold.claim("alice", key, surface="http")

        first = onefold.keys.find(limit=15)
        rest = onefold.keys.find(after=first.next)
        assert [key.key for key in (*first, *rest)] == wanted
        assert onefold.keys.erase(scope="alice").claims == 20
