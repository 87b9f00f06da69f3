"""SIGKILL before every statement of a crowd's commits: what was answered is there, nothing is half.

Each caller writes down its answer before it goes on; the page outlives the process.
"""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onefold import Onefold
from onefold.claims import Claim, Replay
from tests.batching.crowd import driven
from tests.crash.injector import kill_before
from tests.crash.scenario import Scenario
from tests.fixtures.colours import Colour, Coloured
from tests.fixtures.place import Place
from tests.race.crew import together

SIZE = 4
HOUR = timedelta(hours=1)


class Crowded(Scenario):
    """Several callers at once, in a process that dies."""

    def __init__(self, key: str, colour: Colour, page: Path) -> None:
        super().__init__(key)
        self.colour: Colour = colour
        self.page = page

    def act(self, onefold: Onefold, place: Place) -> object:
        del place
        coloured = Coloured(onefold, self.colour)
        if self.colour == "sync":
            together(*(lambda n=n: driven(self.ask(coloured, n)) for n in range(SIZE)))
            return None

        async def all_of_them() -> None:
            await asyncio.gather(*(self.ask(coloured, number) for number in range(SIZE)))
            if self.page.exists():
                await onefold.aclose()

        return asyncio.run(all_of_them())

    async def ask(self, onefold: Coloured, number: int) -> None:
        answer = await self.one(onefold, number)
        with self.page.open("a") as page:
            page.write(f"{number} {answer}\n")
            page.flush()
            os.fsync(page.fileno())

    async def one(self, onefold: Coloured, number: int) -> object:
        raise NotImplementedError

    def answered(self) -> dict[int, str]:
        """What the callers were told, in all lives."""
        lines = self.page.read_text().splitlines() if self.page.exists() else []
        return {int(number): answer for number, answer in map(str.split, lines)}


class Enqueues(Crowded):
    """Each with a unique key and a publish key: the job and the publish key are there together."""

    async def one(self, onefold: Coloured, number: int) -> object:
        key = f"{self.key} {number}"
        answer = await onefold.enqueue("crash", number, unique_key=key, idempotency_key=key)
        return answer.id

    def whole(self, onefold: Onefold, place: Place) -> None:
        """Every answer is true, and no job is without its publish key or the other way round."""
        prefix = f"{self.key} "
        jobs = {
            key: str(job_id)
            for job_id, key in place.rows("select id, unique_key from {job}")
            if key.startswith(prefix)
        }
        claims = [
            key
            for (key,) in place.rows("select key from {claim} where surface = 'publish'")
            if key.startswith(prefix)
        ]
        assert sorted(jobs) == sorted(claims)
        for number, job_id in self.answered().items():
            assert jobs[f"{self.key} {number}"] == job_id
        del onefold


class Settles(Crowded):
    """Each a claim of its own."""

    def prepare(self, onefold: Onefold) -> None:
        self.claims: list[Claim] = []
        for number in range(SIZE):
            won: Any = onefold.claim("crash", f"{self.key} {number}", lease=HOUR)
            self.claims.append(won.claim)

    async def one(self, onefold: Coloured, number: int) -> object:
        await onefold.keys.settle(self.claims[number], number)
        return "settled"

    def whole(self, onefold: Onefold, place: Place) -> None:
        del place
        for number in self.answered():
            answer = onefold.claim("crash", f"{self.key} {number}")
            assert isinstance(answer, Replay)
            assert answer.result == number


@pytest.mark.prove
@pytest.mark.parametrize("kind", [Enqueues, Settles])
def test_a_death_in_a_shared_commit_leaves_every_answer_true_and_nothing_half(
    place: Place, colour: Colour, kind: type[Enqueues | Settles], tmp_path: Path
) -> None:
    finished, number = False, 0
    while not finished:
        number += 1
        page = tmp_path / f"page {number}"
        crowded = kind(f"crowd {number}", colour, page)
        with crowded.open(place) as onefold:
            crowded.prepare(onefold)

        finished = kill_before(number, crowded, place).finished

        with crowded.open(place) as onefold:
            crowded.whole(onefold, place)
            crowded.act(onefold, place)
        with crowded.open(place) as onefold:
            crowded.whole(onefold, place)
        assert sorted(crowded.answered()) == list(range(SIZE))
    assert number > 2
