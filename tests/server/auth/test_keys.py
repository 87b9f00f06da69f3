"""Keys as their operator and the server use them: made, checked, charged, revoked."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onefold import Admission, InvalidInput, Onefold, Rate
from onefold.testing import Clock
from tests.fixtures.place import Place

NO = Admission(None)
START = datetime(2026, 3, 1, tzinfo=UTC)


def secret_of(text: str) -> str:
    return text.rpartition("_")[2]


def test_a_key_is_made_shown_and_checked_and_its_secret_nowhere_stored(place: Place) -> None:
    with place.open() as onefold:
        new = onefold.api_keys.create(
            "acme",
            scopes=["work", "publish"],
            name="web",
            rate="10/m",
            expires_in=timedelta(days=90),
        )
        plain = onefold.api_keys.create(scopes=["admin"])
        with pytest.raises(InvalidInput, match="expires_in must not be shorter"):
            onefold.api_keys.create(scopes=["publish"], expires_in=timedelta(0))

        assert onefold.api_keys.find() == [new.key, plain.key]
        assert onefold.api_keys.find("acme") == [new.key]
        assert onefold.api_keys.find("") == [plain.key]
        assert onefold.api_keys.find("others") == []
        assert onefold.api_keys.check(new.text) == Admission(new.key)
        assert onefold.api_keys.check(plain.text) == Admission(plain.key)
    rows = place.rows("select * from {api_key}", api_key=place.table("api_key"))
    assert new.key.id in repr(rows)
    assert secret_of(new.text) not in repr(rows)
    assert new.key.tenant == "acme"
    assert new.key.scopes == ("publish", "work")
    assert new.key.rate == Rate(10, timedelta(minutes=1))
    assert new.key.expires_at == new.key.created_at + timedelta(days=90)
    assert plain.key.rate is None
    assert plain.key.expires_at is None
    assert plain.key.revoked_at is None


def test_a_key_with_a_wrong_secret_does_not_count_and_is_not_charged(place: Place) -> None:
    with place.open() as onefold:
        new = onefold.api_keys.create(scopes=["work"], rate="1/h")
        other = onefold.api_keys.create(scopes=["work"])
        forged = f"of_{new.key.id}_{secret_of(other.text)}"

        for wrong in (forged, f"of_{'a' * 16}_{secret_of(new.text)}", "", "Basic", new.text + "x"):
            assert onefold.api_keys.check(wrong) == NO

        assert onefold.api_keys.check(new.text) == Admission(new.key)


def test_a_rate_holds_over_all_processes_and_refills(place: Place) -> None:
    clock = Clock(START)
    with place.open(clock=clock) as onefold, place.open(clock=clock) as elsewhere:
        new = onefold.api_keys.create(scopes=["publish"], rate="3/m")
        both = [onefold, elsewhere]

        waits = [both[turn % 2].api_keys.check(new.text).wait for turn in range(5)]
        clock.advance(timedelta(seconds=20))
        later = [one.api_keys.check(new.text).wait for one in both]

    nothing, interval = timedelta(0), timedelta(seconds=20)
    assert waits == [nothing, nothing, nothing, interval, interval]
    assert later == [nothing, interval]


async def check_all(onefold: Onefold, texts: list[str]) -> list[Admission]:
    return list(await asyncio.gather(*(onefold.api_keys.acheck(text) for text in texts)))


def test_a_crowd_is_granted_exactly_the_rate(place: Place) -> None:
    clock = Clock(START)
    with place.open(clock=clock) as onefold, place.open(clock=clock) as elsewhere:
        new = onefold.api_keys.create(scopes=["publish"], rate="30/m")
        free = onefold.api_keys.create("acme", scopes=["publish"])

        async def crowd() -> list[Admission]:
            texts = [new.text, free.text] * 40
            halves = await asyncio.gather(check_all(onefold, texts), check_all(elsewhere, texts))
            await onefold.aclose()
            await elsewhere.aclose()
            return [*halves[0], *halves[1]]

        answers = asyncio.run(crowd())

    rated = [answer for answer in answers if answer.key == new.key]
    assert len(rated) == 80
    assert sum(not answer.wait for answer in rated) == 30
    assert [answer for answer in answers if answer.key == free.key] == [Admission(free.key)] * 80


def test_those_who_ask_together_share_a_statement(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so one who asks after a revocation is never told what was read before it."""
    with place.open() as onefold:
        new = onefold.api_keys.create(scopes=["publish"])
        database: Any = onefold.context.database
        reads = 0
        plainly = database.alook

        async def counting(build: Any) -> Any:
            nonlocal reads
            reads += 1
            return await plainly(build)

        monkeypatch.setattr(database, "alook", counting)

        async def ask() -> list[Admission]:
            answers = await check_all(onefold, [new.text] * 50)
            await onefold.api_keys.arevoke(new.key.id)
            answers += await check_all(onefold, [new.text] * 50)
            await onefold.aclose()
            return answers

        answers = asyncio.run(ask())

    assert answers == [Admission(new.key)] * 50 + [NO] * 50
    assert 2 <= reads <= 6


def test_that_there_is_no_key_is_believed_for_a_second(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("onefold.app.api_keys.time.monotonic", lambda: now)
    with place.open() as onefold, place.open() as elsewhere:
        assert onefold.api_keys.exist() is False
        elsewhere.api_keys.create(scopes=["admin"])

        now += 0.9
        believed = onefold.api_keys.exist()
        now += 0.2
        known = onefold.api_keys.exist()

    assert (believed, known) == (False, True)
