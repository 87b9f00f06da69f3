"""Which shards are left out, for how long, and what is read without them."""

from collections.abc import Iterator

import pytest

from onefold import Onefold
from onefold.operations.queues import look
from onefold.operations.statement import Operation, Row, Sql, Statement, in_all_shards
from onefold.worker.shards import LONGEST_PAUSE, Shards
from tests.fixtures.place import Place
from tests.fixtures.shards import found
from tests.fixtures.steps import Steps

BAD = 2


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def onefold(postgres_url: str, postgres_schema: str) -> Iterator[Onefold]:
    """Four shards."""
    place = Place(postgres_url, postgres_schema)
    found(place, 4)
    with place.open() as onefold:
        onefold.context.database.identity()
        yield onefold


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def shards(onefold: Onefold, time: Time) -> Shards:
    return Shards(onefold.context.runtime, clock=time)


def dividing(sql: Sql) -> Operation[list[Row]]:
    """Fails on the bad shard."""
    rows: list[Row] = []
    for shard in sql.visited:
        text = f"select {shard}, 1 / ({shard} - {BAD})"
        rows += yield Statement("divide", text, {})
    return rows


def failing(sql: Sql) -> Operation[None]:
    yield Statement("fail", f"select 1 / {len(sql.visited) * 0}", {})


def test_a_shard_is_left_out_for_longer_each_time(shards: Shards, time: Time) -> None:
    pauses: list[float] = []
    for _ in range(10):
        shards.failed(BAD, "take", OSError("away"))
        assert shards.usable("take") == [0, 1, 3]
        assert shards.usable("look") == [0, 1, 2, 3]
        began = time.now
        while shards.usable("take") == [0, 1, 3]:
            time.now += 0.1
        pauses.append(time.now - began)
    assert pauses[0] < 1.5
    assert LONGEST_PAUSE * 0.7 < pauses[-1] < LONGEST_PAUSE * 1.3

    shards.worked(BAD, "take")
    shards.failed(BAD, "take", OSError("away"))
    time.now += 1.5
    assert shards.usable("take") == [0, 1, 2, 3]


def test_a_read_leaves_out_what_fails_unless_all_do(onefold: Onefold, shards: Shards) -> None:
    runtime = onefold.context.runtime
    assert [shard for shard, _ in runtime.run(shards.read("divide", dividing))] == [0, 1, 3]
    assert shards.usable("divide") == [0, 1, 3]
    assert [shard for shard, _ in runtime.run(shards.read("divide", dividing))] == [0, 1, 3]
    with pytest.raises(Exception, match="division by zero"):
        runtime.run(shards.read("fail", failing))


def test_a_look_asks_all_shards_in_one_statement_unless_they_are_distributed() -> None:
    queues, row = ["a"], ("a", False, False, True, False, None, 0)
    run = Steps(look(Sql("postgres", shards=8), queues))
    asked = run.answer("look", [row] * 8)
    assert asked.parameters["shards"] == list(range(8))
    assert run.result[0].due

    apart = Steps(look(Sql("postgres", shards=2, distributed=True), queues))
    assert [apart.answer("look", [row]).parameters["shard"] for _ in range(2)] == [0, 1]
    assert apart.result[0].due


def test_an_operation_visits_the_shards_that_it_is_given() -> None:
    run = Steps(in_all_shards(Sql("postgres", shards=8).only([5, 2]), "find_queues"))
    assert [run.answer("find_queues").parameters["shard"] for _ in range(2)] == [5, 2]
    assert run.result == []
