"""A database that refuses every take, for a reason that the worker does not know."""

import logging
from itertools import pairwise

import pytest

from onefold.worker.producer import FIRST_PAUSE
from tests.fixtures.place import Place
from tests.worker.stage import ended, perform, until, working


def test_a_worker_whose_takes_are_refused_pauses_between_them(
    postgres_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place = postgres_place
    with place.open() as onefold, place.connection() as other:

        @onefold.job
        async def work() -> None: ...

        other.execute(
            f"create function {place.schema}.refuse() returns trigger language plpgsql as"
            " $$ begin raise exception 'not today'; end $$"
        )
        other.execute(
            f"create trigger refuse before update on {place.schema}.job for each row"
            f" when (new.state = 1) execute function {place.schema}.refuse()"
        )

        def refused() -> list[float]:
            errors = [record for record in caplog.records if record.levelno == logging.ERROR]
            return [record.relativeCreated / 1_000 for record in errors]

        async def play() -> None:
            job = (await work.aenqueue()).id
            async with working(onefold, chores=False):
                await until(lambda: len(refused()) > 4)
                other.execute(f"drop trigger refuse on {place.schema}.job")
                await ended(onefold, job)

        perform(play, onefold)
        # The shortest pause is half of the first one.
        assert all(later - first > FIRST_PAUSE / 3 for first, later in pairwise(refused()))
