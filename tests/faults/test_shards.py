"""The number of shards is data: the first migrate writes it, and nobody who differs comes in."""

import json

import pytest

from onefold import NewJob, Onefold, ShardsDiffer
from tests.faults.callers import MakeCaller
from tests.faults.together import at_once
from tests.fixtures.place import Place
from tests.fixtures.shards import found

FOUND = """
    import sys
    from onefold import Onefold, ShardsDiffer
    url, schema, shards = sys.argv[1:]
    onefold = Onefold(url, schema=schema, shards=int(shards) or None)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        onefold.migrate()
        stored = onefold.enqueue("mail", unique_key="k")
        print(onefold.get(stored.id).id, stored.duplicate)
    except ShardsDiffer as error:
        print("refused", error.requested, error.found)
"""

FIRST_USE = FOUND.replace("onefold.migrate()\n", "pass\n")
"""A file migrates itself."""


def shards_of(place: Place) -> int:
    """What the tables themselves say."""
    ((identity,),) = place.rows("select value from {meta} where name = 'identity'")
    shards: int = json.loads(identity)["shards"]
    return shards


def check_founding(place: Place, script: str, asked: list[int]) -> None:
    """One number won; who asked for another was told it, and the others share one job."""
    said = at_once(script, [(place.url, place.schema, shards) for shards in asked])

    won = shards_of(place)
    assert won in {shards or 1 for shards in asked}
    refused = [words for words in said if words[0] == "refused"]
    stored = [words for words in said if words[0] != "refused"]
    told = [("refused", str(shards), str(won)) for shards in asked if shards not in {0, won}]
    assert sorted(map(tuple, refused)) == sorted(told)
    assert sorted(duplicate for _, duplicate in stored) == ["False", *["True"] * (len(stored) - 1)]
    assert len({job_id for job_id, _ in stored}) == 1
    assert place.rows("select count(*) from {job}") == [(1,)]


class TestFounding:
    """Two numbers at once: one founds, the other refuses, and nobody has done both."""

    @pytest.mark.prove
    def test_of_several_numbers_at_once_one_is_the_databases(self, empty: Place) -> None:
        check_founding(empty, FOUND, [2, 3, 2, 3, 0])

    @pytest.mark.prove
    def test_a_file_that_is_founded_by_its_first_use_has_one_number_too(
        self, sqlite_url: str
    ) -> None:
        check_founding(Place(sqlite_url), FIRST_USE, [2, 3, 2, 3, 0])

    def test_a_process_that_says_nothing_adopts(self, empty: Place) -> None:
        found(empty, 4)

        with empty.open() as onefold:
            answers = onefold.enqueue_many([NewJob("mail", unique_key=f"{n}") for n in range(64)])
            assert shards_of(empty) == 4
            assert {shard for (shard,) in empty.rows("select shard from {job}")} == {0, 1, 2, 3}
            with Onefold(empty.url, schema=empty.schema, shards=4) as same:
                again = same.enqueue_many([NewJob("mail", unique_key=f"{n}") for n in range(64)])
        assert [answer.id for answer in again] == [answer.id for answer in answers]

    def test_a_new_database_of_which_nobody_says_anything_has_one(self, empty: Place) -> None:
        with empty.open() as onefold:
            onefold.migrate()
            assert shards_of(empty) == 1


class TestRefusal:
    """A process that differs is told both numbers, and changes nothing."""

    @pytest.mark.parametrize("other", [1, 2, 5, 4096])
    def test_migrate_with_another_number_changes_nothing(self, empty: Place, other: int) -> None:
        found(empty, 4)
        before = empty.contents()

        with (
            Onefold(empty.url, schema=empty.schema, shards=other) as onefold,
            pytest.raises(
                ShardsDiffer, match=f"has 4 shards.*requests {other}.*shards=4"
            ) as caught,
        ):
            onefold.migrate()

        assert (caught.value.requested, caught.value.found) == (other, 4)
        assert empty.contents() == before

    def test_every_first_call_refuses(self, empty: Place, make_caller: MakeCaller) -> None:
        found(empty, 4)
        before = empty.contents()

        caller = make_caller(Onefold(empty.url, schema=empty.schema, shards=2))
        for name, arguments in (
            ("enqueue", ("mail",)),
            ("find", ()),
            ("claim", ("scope", "key")),
            ("migrate", ()),
        ):
            with pytest.raises(ShardsDiffer):
                caller(name, *arguments)
        with pytest.raises(ShardsDiffer):
            caller("deliveries.rescue")
        with (
            Onefold(empty.url, schema=empty.schema, shards=2) as onefold,
            empty.connection() as connection,
        ):
            connection.execute(empty.begin)
            with pytest.raises(ShardsDiffer):
                onefold.within(connection).enqueue("mail")
            connection.execute("commit")

        assert empty.contents() == before

    def test_a_transaction_that_founds_and_is_rolled_back_binds_nobody(
        self, sqlite_url: str
    ) -> None:
        """Tables made within a caller's transaction vanish with it, and so does their number."""
        place = Place(sqlite_url)
        with Onefold(place.url, shards=2) as onefold, place.connection() as connection:
            connection.execute(place.begin)
            assert onefold.within(connection).enqueue("mail").inserted
            connection.execute("rollback")
            found(place, 4)

            with pytest.raises(ShardsDiffer):
                onefold.enqueue("mail")
