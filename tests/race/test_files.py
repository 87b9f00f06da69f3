"""SQLite between processes: opening a new file at once, and writing back to back."""

from pathlib import Path
from uuid import uuid4

import pytest

from onefold import Enqueued
from tests.fixtures.place import Place
from tests.fixtures.soak import repetitions
from tests.race.crew import Crew, Racer, race_threads, values


def open_and_enqueue(racer: Racer, url: str, schema: str) -> Enqueued:
    with Place(url, schema).open() as onefold:
        if url.startswith("postgresql"):
            onefold.migrate()
        return onefold.enqueue("first", unique_key="k")


@pytest.mark.parametrize("racers", ["processes", "threads"])
def test_a_file_that_is_new_to_everybody_is_migrated_once(
    place: Place, crew: Crew, tmp_path: Path, racers: str
) -> None:
    for number in range(repetitions(10, soak=300)):
        new = place._replace(url=f"sqlite:///{tmp_path / str(number)}.db")
        if place.on_postgres:
            new = place
        if racers == "processes":
            answers = values(crew.race(place, open_and_enqueue, *new))
        else:
            answers = values(race_threads(place, open_and_enqueue, *new))
        assert len({answer.id for answer in answers}) == 1
        assert len(new.rows("select * from {migration}")) == 1


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
