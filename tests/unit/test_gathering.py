"""Flights and lanes: whatever fails, everybody is answered exactly once, with its own answer."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.databases import gathering
from onefold.databases.gathering import (
    CROWD,
    LARGEST_FLIGHT,
    HeldUp,
    Lane,
    Lanes,
    Shared,
    Waiting,
    flight,
)
from onefold.databases.gathering import tasks as tasks_of_gathering
from onefold.databases.gathering.tasks import GatheredTasks
from onefold.databases.gathering.threads import GatheredThreads
from onefold.errors import (
    AlreadyEnqueued,
    DatabaseBusy,
    DatabaseUnavailable,
    KeyReused,
    OnefoldError,
)
from onefold.operations.statement import Operation, Sql
from tests.race.waiting import until

SQL = Sql("sqlite")
SETTINGS: Any = {"patience": 60.0, "busy": lambda: busy(60)}


def busy(seconds: int) -> DatabaseBusy:
    return DatabaseBusy("somebody has it.", waited=timedelta(seconds=seconds))


def many(sql: Sql, items: Sequence[Any]) -> Operation[list[Any]]:
    """An operation that wants nothing of a database: it raises what it is given, or answers."""
    yield sql("find_jobs")
    for item in items:
        if isinstance(item, Exception):
            raise item
    return list(items)


def shared(item: object, key: object = None) -> Shared[Any, Any]:
    return Shared(many, item, "mates", item if key is None else key)


class Told(Waiting):
    """Remembers what it was told."""

    def __init__(self, item: object, key: object = None) -> None:
        super().__init__(shared(item, key), deadline=60.0)
        self.told: list[tuple[object, BaseException | None]] = []

    def _tell(self, answer: object, error: BaseException | None) -> None:
        self.told.append((answer, error))


def fly(waiting: Sequence[Told], transact: Any) -> list[int]:
    """Let a flight take place; answers with the sizes of its transactions."""
    sizes: list[int] = []
    flying = flight(waiting)
    with suppress(StopIteration):
        some = next(flying)
        while True:
            sizes.append(len(some))
            try:
                answers = transact(some)
            except Exception as error:  # noqa: BLE001 - the flight's to answer
                some = flying.throw(error)
            else:
                some = flying.send(answers)
    return sizes


def transact(some: Sequence[Waiting]) -> list[Any]:
    """All or nothing: the first bad item fails the transaction."""
    for each in some:
        if isinstance(each.shared.value, Exception):
            raise each.shared.value
    return [each.shared.value for each in some]


ERRORS = st.sampled_from(
    [
        AlreadyEnqueued(key="k", holder_id="j", state="queued", item=0),
        KeyReused(key="k"),
        busy(0),
        ValueError("somebody's own"),
        HeldUp(),
    ]
)


def nothing(some: Sequence[Waiting]) -> list[Any]:
    """An operation that forgets its answers."""
    del some
    return []


class TestFlight:
    def test_all_go_in_one_transaction(self) -> None:
        waiting = [Told(number) for number in range(5)]

        assert fly(waiting, transact) == [5]
        assert [one.told for one in waiting] == [[(number, None)] for number in range(5)]

    @given(st.lists(st.integers() | ERRORS, min_size=1))
    def test_each_is_told_once_what_became_of_its_own(self, items: list[object]) -> None:
        waiting = [Told(item, key=number) for number, item in enumerate(items)]

        fly(waiting, transact)

        for one, item in zip(waiting, items, strict=True):
            ((answer, error),) = one.told
            assert one.answered
            if isinstance(item, Exception):
                assert type(error) is type(item)
                assert str(error) == str(item)
            else:
                assert (answer, error) == (item, None)

    @given(
        st.lists(st.integers(), min_size=1),
        st.lists(st.none() | ERRORS | st.just(DatabaseUnavailable("db", "is away.")), min_size=1),
    )
    def test_whatever_the_database_does_everybody_is_told_once(
        self, items: list[int], weather: list[Exception | None]
    ) -> None:
        waiting = [Told(item) for item in items]
        coming = iter(weather)

        def transact_in(some: Sequence[Waiting]) -> list[Any]:
            if (error := next(coming, None)) is not None:
                raise error
            return transact(some)

        fly(waiting, transact_in)

        assert all(len(one.told) == 1 for one in waiting)

    @pytest.mark.parametrize("error", [DatabaseUnavailable("db", "is away."), busy(5)], ids=str)
    @pytest.mark.parametrize("first", [0, 1, 3])
    def test_nobody_waits_again_for_what_befalls_all(self, error: OnefoldError, first: int) -> None:
        """`first` good single transactions after a flight that failed; 0: the flight itself."""
        waiting = [Told(number) for number in range(6)]
        tries: list[int] = []

        def transact_in(some: Sequence[Waiting]) -> list[Any]:
            tries.append(len(some))
            if first and len(tries) == 1:
                raise ValueError
            if len(tries) > first:
                raise error
            return transact(some)

        fly(waiting, transact_in)

        assert len(tries) == first + 1
        failed = [one.told[0][1] for one in waiting if one.told[0][1] is not None]
        assert len(failed) == 6 - max(first - 1, 0)
        assert all(type(one) is type(error) for one in failed)
        assert len({id(one) for one in failed}) == len(failed)

    def test_a_held_key_is_asked_for_once(self) -> None:
        waiting = [Told("a"), Told(HeldUp(), key="k"), Told("b", key="k"), Told("c")]

        sizes = fly(waiting, transact)

        assert sizes == [4, 1, 1, 1]
        assert [type(one.told[0][1]) for one in waiting] == [
            type(None), HeldUp, HeldUp, type(None),
        ]  # fmt: skip

    def test_too_few_answers_are_an_error_for_everybody(self) -> None:
        waiting = [Told(1), Told(2)]

        fly(waiting, nothing)

        assert [type(one.told[0][1]) for one in waiting] == [ValueError, ValueError]


class TestLanes:
    def test_a_held_key_has_a_lane_of_its_own_until_nobody_is_in_it(self) -> None:
        lanes: Lanes[Told] = Lanes()
        common = lanes.of(shared("a"), held=False)
        common.pending.append(Told("a"))
        own = lanes.of(shared("b"), held=True)
        own.pending.append(Told("b"))

        assert own.patient
        assert not common.patient
        assert lanes.of(shared("b"), held=False) is own
        assert lanes.of(shared("c"), held=False) is common
        own.board()
        lanes.leave(shared("b"), own)
        assert lanes.of(shared("b"), held=False) is common

    def test_a_lane_with_somebody_in_it_is_not_forgotten(self) -> None:
        lanes: Lanes[Told] = Lanes()
        lane = lanes.of(shared("a"), held=True)
        lane.pending.append(Told("a"))

        lanes.leave(shared("a"), lane)

        assert lanes.of(shared("a"), held=False) is lane

    def test_a_flight_takes_no_more_than_it_can(self) -> None:
        lane: Lane[Told] = Lane(patient=False)
        lane.pending += [Told(number) for number in range(LARGEST_FLIGHT + 3)]

        assert len(lane.board()) == LARGEST_FLIGHT
        assert [one.shared.value for one in lane.board()] == [
            LARGEST_FLIGHT, LARGEST_FLIGHT + 1, LARGEST_FLIGHT + 2,
        ]  # fmt: skip
        assert lane.board() == []


class Slow:
    """A database that takes its time: transactions stand still until they are let go."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.go = asyncio.Event()

    async def transact(self, build: Any, *, patient: bool, deadline: float | None = None) -> Any:
        answers = answered(build)
        self.sizes.append(len(answers))
        await self.go.wait()
        return answers

    async def ask(self, gathered: GatheredTasks, *numbers: int) -> list[asyncio.Task[Any]]:
        """Ask for these at once, and come back when whoever may leave has left."""
        tasks = [asyncio.create_task(gathered.run(shared(number))) for number in numbers]
        for _ in range(3):
            await asyncio.wait(tasks, timeout=0)
        return tasks


def never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long this machine is busy with something else."""
    monkeypatch.setattr(gathering, "LATE", 3600)
    monkeypatch.setattr(tasks_of_gathering, "LATE", 3600)


class TestCrowds:
    def test_a_few_tasks_wait_for_the_flight_that_is_on_its_way(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        never_late(monkeypatch)

        async def play() -> list[int]:
            slow = Slow()
            gathered = GatheredTasks(slow.transact, **SETTINGS)
            tasks = [*await slow.ask(gathered, 0), *await slow.ask(gathered, *range(1, CROWD))]
            assert slow.sizes == [1]
            slow.go.set()
            assert await asyncio.gather(*tasks) == list(range(CROWD))
            return slow.sizes

        assert asyncio.run(play()) == [1, CROWD - 1]

    def test_a_crowd_of_tasks_does_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        never_late(monkeypatch)

        async def play() -> list[int]:
            slow = Slow()
            gathered = GatheredTasks(slow.transact, **SETTINGS)
            tasks = [*await slow.ask(gathered, 0), *await slow.ask(gathered, *range(1, CROWD + 1))]
            assert slow.sizes == [1, CROWD]
            # Two are enough.
            tasks += await slow.ask(gathered, *range(CROWD + 1, 3 * CROWD))
            assert slow.sizes == [1, CROWD]
            slow.go.set()
            assert await asyncio.gather(*tasks) == list(range(3 * CROWD))
            return slow.sizes

        assert sum(asyncio.run(play())) == 3 * CROWD

    def test_nobody_waits_for_a_flight_that_is_late(self) -> None:
        async def play() -> None:
            hangs, works = Slow(), Slow()
            works.go.set()
            flights = iter([hangs.transact, works.transact])

            async def transact(build: Any, *, patient: bool, deadline: float | None = None) -> Any:
                return await next(flights)(build, patient=patient, deadline=deadline)

            gathered = GatheredTasks(transact, **SETTINGS)
            (first,) = await hangs.ask(gathered, 0)
            (second,) = await hangs.ask(gathered, 1)
            assert await second == 1
            assert not first.done()
            hangs.go.set()
            assert await first == 0

        asyncio.run(play())

    def test_nor_does_anybody_who_comes_after_it_was(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def play() -> None:
            hangs, works = Slow(), Slow()
            works.go.set()
            flights = chain([hangs.transact], repeat(works.transact))

            async def transact(build: Any, *, patient: bool, deadline: float | None = None) -> Any:
                return await next(flights)(build, patient=patient, deadline=deadline)

            gathered = GatheredTasks(transact, **SETTINGS)
            (first,) = await hangs.ask(gathered, 0)
            assert await gathered.run(shared(1)) == 1
            # Whoever waited for it again would wait until the test is given up.
            monkeypatch.setattr(tasks_of_gathering, "LATE", 60)
            async with asyncio.timeout(30):
                assert [await gathered.run(shared(number)) for number in (2, 3)] == [2, 3]
            assert not first.done()
            hangs.go.set()
            assert await first == 0

        asyncio.run(play())


def answered(build: Any) -> Any:
    """What an operation answers to a database that has nothing to say."""
    operation = build(SQL)
    next(operation)
    try:
        operation.send([])
    except StopIteration as finished:
        return finished.value
    raise AssertionError


KEYS = st.integers(0, 3)
CALLS = st.lists(st.tuples(KEYS, st.booleans()), min_size=1, max_size=12)


class Weather:
    """A database that holds some keys until they have been asked for patiently."""

    def __init__(self, held: set[int]) -> None:
        self.held = held
        self.transactions = 0

    def transact(self, build: Any, *, patient: bool, deadline: float | None = None) -> Any:
        self.transactions += 1
        try:
            answers = answered(build)
        except KeyReused as error:
            raise KeyReused(key=str(error)) from None
        wanted = {key for key, _ in answers}
        if wanted & self.held:
            if not patient:
                raise HeldUp
            self.held -= wanted
        return answers


def call(key: int, number: int, *, bad: bool) -> Shared[Any, Any]:
    return shared(KeyReused(key=str(number)) if bad else (key, number), key=key)


@given(CALLS, st.sets(KEYS))
def test_threads_are_all_answered_and_leave_nothing_behind(
    calls: list[tuple[int, bool]], held: set[int]
) -> None:
    weather = Weather(held)
    gathered = GatheredThreads(weather.transact, **SETTINGS)
    answers: list[Any] = [None] * len(calls)

    def work(number: int, key: int, *, bad: bool) -> None:
        try:
            answers[number] = gathered.run(call(key, number, bad=bad))
        except KeyReused as error:
            answers[number] = error

    threads = [
        threading.Thread(target=work, args=(number, key), kwargs={"bad": bad})
        for number, (key, bad) in enumerate(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    check(calls, answers)
    assert gathered._lanes._lanes == {}


@given(CALLS, st.sets(KEYS), st.sets(st.integers(0, 11)))
def test_tasks_are_all_answered_and_leave_nothing_behind(
    calls: list[tuple[int, bool]], held: set[int], cancelled: set[int]
) -> None:
    weather = Weather(held)

    async def transact(build: Any, *, patient: bool, deadline: float | None = None) -> Any:
        await asyncio.sleep(0)
        return weather.transact(build, patient=patient)

    async def main() -> list[Any]:
        gathered = GatheredTasks(transact, **SETTINGS)
        tasks = [
            asyncio.create_task(gathered.run(call(key, number, bad=bad)))
            for number, (key, bad) in enumerate(calls)
        ]
        await asyncio.sleep(0)
        for number in cancelled & set(range(len(tasks))):
            tasks[number].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*gathered._flights)
        assert gathered._lanes._lanes == {}
        return found

    answers = asyncio.run(main())

    for number in cancelled & set(range(len(calls))):
        assert isinstance(answers[number], asyncio.CancelledError)
    left = [number for number in range(len(calls)) if number not in cancelled]
    check([calls[number] for number in left], [answers[number] for number in left], left)


def check(calls: list[tuple[int, bool]], answers: list[Any], numbers: Any = None) -> None:
    """Each has its own answer, or its own error."""
    for number, (key, bad), answer in zip(
        numbers or range(len(calls)), calls, answers, strict=True
    ):
        if bad:
            assert isinstance(answer, KeyReused)
            assert str(number) in str(answer)
        else:
            assert answer == (key, number)


def pending(gathered: GatheredThreads) -> int:
    return sum(len(lane.pending) for lane in list(gathered._lanes._lanes.values()))


class TestInterrupted:
    def test_a_leading_thread_that_is_interrupted_leaves_the_others_to_the_next(self) -> None:
        blocked, interrupted = threading.Event(), threading.Event()
        tries: list[int] = []

        def transact(build: Any, *, patient: bool, deadline: float | None = None) -> Any:
            del patient
            tries.append(1)
            if len(tries) <= 2:
                # The two flights that leave at once: the others wait behind them.
                blocked.wait()
            elif len(tries) == 3:
                interrupted.set()
                raise KeyboardInterrupt
            return answered(build)

        gathered = GatheredThreads(transact, **SETTINGS)
        answers: dict[int, Any] = {}

        def work(number: int) -> None:
            try:
                answers[number] = gathered.run(shared(number))
            except KeyboardInterrupt as error:
                answers[number] = error

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        until(lambda: pending(gathered) == 4, "for four to wait behind two flights")
        blocked.set()
        for thread in threads:
            thread.join()

        assert interrupted.is_set()
        wrong = [number for number, answer in answers.items() if answer != number]
        assert len(wrong) == 1
        assert isinstance(answers[wrong[0]], KeyboardInterrupt)
        assert gathered._lanes._lanes == {}

    def test_a_flight_that_is_cancelled_before_it_began_is_called_for_again(self) -> None:
        async def transact(build: Any, *, patient: bool, deadline: float | None = None) -> Any:
            del patient
            return answered(build)

        async def main() -> list[Any]:
            gathered = GatheredTasks(transact, **SETTINGS)
            tasks = [asyncio.create_task(gathered.run(shared(number))) for number in range(3)]
            # Each has asked; the flight has not left yet.
            await asyncio.sleep(0)
            for flying in gathered._flights:
                flying.cancel()
            answers = await asyncio.gather(*tasks)
            await asyncio.gather(*gathered._flights)
            assert gathered._lanes._lanes == {}
            return list(answers)

        assert asyncio.run(main()) == [0, 1, 2]

    def test_a_flight_that_is_cancelled_on_its_way_is_called_for_again(self) -> None:
        async def main() -> list[Any]:
            on_its_way = asyncio.Event()
            tries: list[int] = []

            async def transact(build: Any, *, patient: bool, deadline: float | None = None) -> Any:
                del patient
                tries.append(1)
                await asyncio.sleep(0)
                # The first goes alone; this is the flight of those who came after.
                if len(tries) == 2:
                    on_its_way.set()
                    await asyncio.Event().wait()
                return answered(build)

            gathered = GatheredTasks(transact, **SETTINGS)
            tasks = [asyncio.create_task(gathered.run(shared(number))) for number in range(3)]
            await on_its_way.wait()
            for flying in gathered._flights:
                flying.cancel()
            return list(await asyncio.gather(*tasks))

        assert asyncio.run(main()) == [0, 1, 2]

    def test_a_loop_that_ends_in_the_middle_ends(self) -> None:
        """Who catches its cancellation may still ask for something."""
        asked: list[Any] = []

        async def transact(build: Any, *, patient: bool, deadline: float | None = None) -> Any:
            del patient
            answers = answered(build)
            if "first" in answers:
                await asyncio.Event().wait()
            return answers

        async def caller(gathered: GatheredTasks) -> None:
            try:
                await gathered.run(shared("first"))
            except asyncio.CancelledError:
                asked.append(await gathered.run(shared("last words")))
                raise

        async def main() -> None:
            gathered = GatheredTasks(transact, **SETTINGS)
            asked_for = [asyncio.create_task(caller(gathered)) for _ in range(3)]
            await asyncio.wait(asked_for, timeout=0)

        asyncio.run(main())

        assert asked == ["last words"] * 3


def test_a_thread_that_leads_more_than_a_flight_can_take_still_gets_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onefold.databases.gathering.LARGEST_FLIGHT", 2)
    start = threading.Barrier(16)
    gathered = GatheredThreads(Weather(set()).transact, **SETTINGS)
    answers: list[Any] = [None] * 16

    def work(number: int) -> None:
        start.wait()
        for _ in range(20):
            answers[number] = gathered.run(call(number, number, bad=False))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [(number, number) for number in range(16)]
