"""SQLite between processes: opening a new file at once, and writing back to back."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from onefold import DatabaseBusy, Enqueued
from onefold.operations.migrations import latest
from tests.fixtures.place import Place
from tests.fixtures.proof import proved, repetitions
from tests.race.crew import Crew, Racer, race_by, together, values


def open_and_enqueue(racer: Racer, url: str) -> Enqueued:
    with Place(url).open() as onefold:
        return onefold.enqueue("first", unique_key="k")


@pytest.mark.parametrize("racers", ["processes", *proved("threads")])
def test_a_file_that_is_new_to_everybody_is_migrated_once(
    crew: Crew, migrated_sqlite_url: str, tmp_path: Path, racers: str
) -> None:
    warm = Place(migrated_sqlite_url)
    for number in range(repetitions(10, soak=300)):
        new = Place(f"sqlite:///{tmp_path / str(number)}.db")
        answers = values(race_by(racers, crew, warm, open_and_enqueue, new.url))
        assert len({answer.id for answer in answers}) == 1
        numbers = [number for (number,) in new.rows("select number from {migration}")]
        assert sorted(numbers) == list(range(1, latest("sqlite") + 1))


def write_until_all_have_written(racer: Racer, folder: str, least: int) -> int:
    """Write back to back until everybody has written `least` times: nobody may starve."""
    written = 0
    mine = Path(folder) / str(racer.rank)
    while True:
        if racer.rank % 2:
            racer.onefold.enqueue("mine", {"rank": racer.rank})
        else:
            with racer.place.transaction() as connection:
                racer.onefold.within(connection).enqueue("mine", {"rank": racer.rank})
        written += 1
        if written == least:
            mine.touch()
        if len(list(Path(folder).iterdir())) == 4:
            return written


def test_processes_that_write_back_to_back_all_progress(
    place: Place, crew: Crew, tmp_path: Path
) -> None:
    folder = tmp_path / uuid4().hex
    folder.mkdir()
    least = repetitions(30, soak=2_000)
    written = values(crew.race(place, write_until_all_have_written, str(folder), least))
    assert min(written) >= least
    assert place.rows("select count(*) from {job}") == [(sum(written),)]


def test_a_thread_is_not_blamed_for_a_connection_that_is_no_longer_its_own(sqlite_url: str) -> None:
    """Python gives the address of a closed connection to the next one, in whatever thread."""
    place = Place(sqlite_url)
    with place.open(busy_timeout=timedelta(milliseconds=20)) as onefold:
        mine = place.connect()
        mine.execute("begin immediate")
        onefold.within(mine).enqueue("a")
        mine.execute("commit")
        address = id(mine)
        mine.close()
        del mine
        others: list[Any] = []

        def take_its_place() -> None:
            while len(others) < 100 and not (others and id(others[-1]) == address):
                others.append(place.connect())
            others[-1].execute("begin immediate")

        together(take_its_place)
        with pytest.raises(DatabaseBusy):
            onefold.enqueue("a")
        for other in others:
            other.close()
        assert onefold.enqueue("a").inserted
