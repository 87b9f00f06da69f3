"""Where takes begin: what a worker remembers of the jobs that it has taken."""

from onefold.model.ids import LOWEST_ID
from onefold.model.job import JobRow
from onefold.model.places import ABOVE, BELOW, COMMIT, MOST, Places

NOW = 1_800_000_000_000_000
LONG_AGO = NOW - 10 * COMMIT


def job(number: int, *, priority: int = 0, run_at: int = LONG_AGO, queue: str = "q") -> JobRow:
    return JobRow(
        job_id(number), "", queue, "kind", priority, run_at, 1, 8, 1, "null", None, 0, NOW, None,
        None, None, None, 0, NOW, NOW, "w",
    )  # fmt: skip


def job_id(number: int) -> str:
    return f"00000000-0000-7000-8000-{number:012x}"


def spans(places: Places, *queues: str, shards: int = 1) -> list[tuple[int | str, ...]]:
    return list(zip(*places.spans(range(shards), queues).values(), strict=True))


def test_without_places_a_take_reads_all_of_a_queue_in_one_span() -> None:
    places = Places()

    assert spans(places, "q", "r") == [
        (0, "q", ABOVE, 0, LOWEST_ID, BELOW),
        (0, "r", ABOVE, 0, LOWEST_ID, BELOW),
    ]


def test_a_span_begins_behind_the_last_job_of_each_priority_and_none_is_left_out() -> None:
    places = Places()
    places.pass_by([job(1, priority=-5), job(2, priority=-5), job(3, priority=7)], (), 1)

    assert spans(places, "q") == [
        (0, "q", ABOVE, 0, LOWEST_ID, -5),
        (0, "q", -5, NOW - COMMIT, LOWEST_ID, 7),
        (0, "q", 7, LONG_AGO, job_id(3), BELOW),
    ]
    assert spans(places, "r") == spans(Places(), "r")


def test_a_place_is_no_later_than_transactions_that_may_be_open() -> None:
    places = Places()
    places.pass_by([job(1, run_at=NOW)], (), 1)

    assert spans(places, "q")[1] == (0, "q", 0, NOW - COMMIT, LOWEST_ID, BELOW)


def test_each_shard_has_its_own_places() -> None:
    places = Places()
    places.pass_by([job(1)], (), 4)

    assert [row[0] for row in spans(places, "q", shards=4)] == [0, 0, 1, 2, 3]


def test_only_so_many_priorities_are_remembered() -> None:
    places = Places()
    places.pass_by([job(n, priority=n) for n in range(MOST + 1)], (), 1)
    places.pass_by([job(99, priority=0)], (), 1)

    assert len(spans(places, "q")) == 1 + MOST
    assert (0, "q", 0, LONG_AGO, job_id(99), 1) in spans(places, "q")


def test_what_a_take_has_drained_is_passed_in_every_known_priority() -> None:
    places = Places()
    places.pass_by([job(1, priority=1), job(2, priority=3), job(3, priority=5)], (), 1)
    places.pass_by([job(4, priority=3)], (), 1)

    assert [row[2:5] for row in spans(places, "q")[1:]] == [
        (1, NOW - COMMIT, LOWEST_ID),
        (3, LONG_AGO, job_id(4)),
        (5, LONG_AGO, job_id(3)),
    ]

    places.pass_by([job(6, queue="r")], ("q",), 1)

    assert {row[3] for row in spans(places, "q")[1:]} == {NOW - COMMIT}


def test_a_take_from_the_beginning_that_finds_nothing_returns_to_the_places_before() -> None:
    before = Places()
    before.pass_by([job(1, priority=1), job(2, priority=3)], (), 1)
    empty, full = Places(before), Places(before)
    beginning = [row[2:5] for row in spans(empty, "q")]
    empty.pass_by([], ("q",), 1)
    full.pass_by([job(0, priority=3)], (), 1)

    assert beginning == [(ABOVE, 0, LOWEST_ID), (1, 0, LOWEST_ID), (3, 0, LOWEST_ID)]
    assert spans(empty, "q") == spans(before, "q")
    assert [row[2:5] for row in spans(full, "q")[1:]] == [
        (1, NOW - COMMIT, LOWEST_ID),
        (3, LONG_AGO, job_id(0)),
    ]
