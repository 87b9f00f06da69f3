"""Batches: whatever fails, each caller is answered exactly once, with its own answer or error."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onefold.databases import batching
from onefold.databases.batching import (
    HELD_KEYS,
    MOST_GROUPS,
    QUEUED_CALLS_MAX,
    Entry,
    Groups,
    HeldKeys,
    Item,
    KeyHeld,
    TaskGroup,
    ThreadGroup,
    run_entries,
)
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


def held_keys() -> HeldKeys:
    return HeldKeys(60.0, lambda: busy(60))


def threads_of(transact: Any) -> ThreadGroup:
    return ThreadGroup(transact, held_keys())


def is_idle(group: ThreadGroup) -> bool:
    """Whether no call is queued, waiting or running."""
    return not group._running and not group._held and group._queue.empty()


def groups_of(transact: Any) -> Groups[ThreadGroup]:
    return Groups(partial(ThreadGroup, transact), held_keys())


def tasks_in(group: TaskGroup) -> list[asyncio.Task[None]]:
    """The tasks that run the batches of a group."""
    return [task for task in group._running if isinstance(task, asyncio.Task)]


def tasks_of(transact: Any) -> TaskGroup:
    return TaskGroup(transact, held_keys())


def busy(seconds: int) -> DatabaseBusy:
    return DatabaseBusy("somebody has it.", waited=timedelta(seconds=seconds))


def many(sql: Sql, items: Sequence[Any]) -> Operation[list[Any]]:
    """An operation that wants nothing of a database: it raises what it is given, or answers."""
    yield sql("find_jobs")
    for item in items:
        if isinstance(item, Exception):
            raise item
    return list(items)


def item(value: object, key: object = None) -> Item[Any, Any]:
    return Item(many, value, "group", value if key is None else key)


class Told(Entry):
    """Remembers what its caller was told."""

    def __init__(self, value: object, key: object = None) -> None:
        super().__init__(item(value, key), deadline=60.0)
        self.told: list[tuple[object, BaseException | None]] = []

    def wake(self) -> None:
        self.told.append((self.answer, self.error))


def run_all(waiting: Sequence[Told], transact: Any) -> list[int]:
    """Run a batch; returns the sizes of its transactions."""
    sizes: list[int] = []
    running = run_entries(waiting, Told.wake)
    with suppress(StopIteration):
        some = next(running)
        while True:
            sizes.append(len(some))
            try:
                answers = transact(some)
            except Exception as error:  # noqa: BLE001 - for the batch
                some = running.throw(error)
            else:
                some = running.send(answers)
    return sizes


def transact(some: Sequence[Entry]) -> list[Any]:
    """All or nothing: the first bad item fails the transaction."""
    for each in some:
        if isinstance(each.item.value, Exception):
            raise each.item.value
    return [each.item.value for each in some]


ERRORS = st.sampled_from(
    [
        AlreadyEnqueued(key="k", holder_id="j", state="ready", item=0),
        KeyReused(key="k"),
        busy(0),
        ValueError("somebody's own"),
        KeyHeld(),
    ]
)


def nothing(some: Sequence[Entry]) -> list[Any]:
    """An operation that forgets its answers."""
    del some
    return []


class TestBatch:
    @given(st.lists(st.integers() | ERRORS, min_size=1))
    def test_each_is_told_once_what_became_of_its_own(self, items: list[object]) -> None:
        waiting = [Told(item, key=number) for number, item in enumerate(items)]

        run_all(waiting, transact)

        for one, item in zip(waiting, items, strict=True):
            ((answer, error),) = one.told
            assert one.is_answered
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

        def transact_in(some: Sequence[Entry]) -> list[Any]:
            if (error := next(coming, None)) is not None:
                raise error
            return transact(some)

        run_all(waiting, transact_in)

        assert all(len(one.told) == 1 for one in waiting)

    @pytest.mark.parametrize("error", [DatabaseUnavailable("db", "is away."), busy(5)], ids=str)
    @pytest.mark.parametrize("first", [0, 1, 3])
    def test_nobody_waits_again_for_what_befalls_all(self, error: OnefoldError, first: int) -> None:
        """`first` good single transactions after a batch that failed; 0: the batch itself."""
        waiting = [Told(number) for number in range(6)]
        tries: list[int] = []

        def transact_in(some: Sequence[Entry]) -> list[Any]:
            tries.append(len(some))
            if first and len(tries) == 1:
                raise ValueError
            if len(tries) > first:
                raise error
            return transact(some)

        run_all(waiting, transact_in)

        assert len(tries) == first + 1
        failed = [one.told[0][1] for one in waiting if one.told[0][1] is not None]
        assert len(failed) == 6 - max(first - 1, 0)
        assert all(type(one) is type(error) for one in failed)
        assert len({id(one) for one in failed}) == len(failed)

    def test_a_held_key_is_asked_for_once(self) -> None:
        waiting = [Told("a"), Told(KeyHeld(), key="k"), Told("b", key="k"), Told("c")]

        sizes = run_all(waiting, transact)

        assert sizes == [4, 1, 1, 1]
        assert [type(one.told[0][1]) for one in waiting] == [
            type(None), KeyHeld, KeyHeld, type(None),
        ]  # fmt: skip

    def test_too_few_answers_are_an_error_for_everybody(self) -> None:
        waiting = [Told(1), Told(2)]

        run_all(waiting, nothing)

        assert [type(one.told[0][1]) for one in waiting] == [ValueError, ValueError]


class TestHeldKeys:
    def test_the_first_caller_of_each_key_has_its_turn(self) -> None:
        held, waiters = held_keys(), [asyncio.Event() for _ in range(2 * HELD_KEYS)]
        for number, waiter in enumerate(waiters):
            held[waiter] = ("group", number // 2)

        assert held.have_turn() == waiters[::2]
        assert held.waits_for(item("any", key=0))
        assert not held.waits_for(item("any", key=HELD_KEYS))

    def test_few_keys_at_a_time_have_their_turn(self) -> None:
        held, waiters = held_keys(), [asyncio.Event() for _ in range(HELD_KEYS + 2)]
        for number, waiter in enumerate(waiters):
            held[waiter] = ("group", number)

        assert held.have_turn() == waiters[:HELD_KEYS]
        del held[waiters[1]]
        held.wake()
        assert [waiter.is_set() for waiter in waiters] == [
            number not in {1, HELD_KEYS + 1} for number in range(HELD_KEYS + 2)
        ]


class TestGroups:
    def test_only_so_many_are_kept(self) -> None:
        groups = groups_of(Weather(set()).transact)
        for number in range(3 * MOST_GROUPS):
            assert groups[number] is groups[number]

        assert len(groups) <= MOST_GROUPS


class Slow:
    """A database that takes its time: transactions stand still until they are let go."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.go = asyncio.Event()

    async def transact(self, build: Any, *, patient: bool, deadline: float | None = None) -> Any:
        answers = answered(build)
        self.sizes.append(len(listed(answers)))
        await self.go.wait()
        return answers

    async def ask(self, group: TaskGroup, *numbers: int) -> list[asyncio.Task[Any]]:
        """Ask for these at once, and come back when whoever may leave has left."""
        tasks = [asyncio.create_task(group.run(item(number))) for number in numbers]
        for _ in range(3):
            await asyncio.wait(tasks, timeout=0)
        return tasks


class TestCrowds:
    def test_a_few_tasks_wait_for_the_transaction_under_way_and_a_crowd_does_not(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # However long this machine is busy with something else.
        monkeypatch.setattr(batching, "SLOW_AFTER", 3600)

        async def play() -> None:
            slow = Slow()
            group = tasks_of(slow.transact)
            tasks = [*await slow.ask(group, 0), *await slow.ask(group, *range(1, QUEUED_CALLS_MAX))]
            assert slow.sizes == [1]
            tasks += await slow.ask(group, QUEUED_CALLS_MAX)
            assert slow.sizes == [1, QUEUED_CALLS_MAX]
            # Two are enough.
            tasks += await slow.ask(group, *range(QUEUED_CALLS_MAX + 1, 3 * QUEUED_CALLS_MAX))
            assert slow.sizes == [1, QUEUED_CALLS_MAX]
            slow.go.set()
            assert await asyncio.gather(*tasks) == list(range(3 * QUEUED_CALLS_MAX))
            assert sum(slow.sizes) == 3 * QUEUED_CALLS_MAX

        asyncio.run(play())

    def test_a_late_transaction_is_not_waited_for_by_the_next_call_nor_by_later_ones(self) -> None:
        async def play() -> None:
            hangs, works = Slow(), Slow()
            works.go.set()
            transactions = chain([hangs.transact], repeat(works.transact))

            async def transact(build: Any, *, patient: bool, deadline: float | None = None) -> Any:
                return await next(transactions)(build, patient=patient, deadline=deadline)

            group = tasks_of(transact)
            (first,) = await hangs.ask(group, 0)
            assert await group.run(item(1)) == 1
            for number in (2, 3):
                (later,) = await works.ask(group, number)
                assert later.done()
                assert await later == number
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


def listed(answers: Any) -> list[Any]:
    """The answers of a batch, or the one of a call that runs alone."""
    return [*answers] if type(answers) is list else [answers]


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
        wanted = {key for key, _ in listed(answers)}
        if wanted & self.held:
            if not patient:
                raise KeyHeld
            self.held -= wanted
        return answers


def call(key: int, number: int, *, bad: bool) -> Item[Any, Any]:
    return item(KeyReused(key=str(number)) if bad else (key, number), key=key)


@given(CALLS, st.sets(KEYS))
def test_threads_are_all_answered_and_leave_nothing_behind(
    calls: list[tuple[int, bool]], held: set[int]
) -> None:
    weather = Weather(held)
    group = threads_of(weather.transact)
    answers: list[Any] = [None] * len(calls)

    def work(number: int, key: int, *, bad: bool) -> None:
        try:
            answers[number] = group.run(call(key, number, bad=bad))
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
    until(lambda: is_idle(group), "for the group to be idle")


@given(CALLS, st.sets(KEYS), st.sets(st.integers(0, 11)))
def test_tasks_are_all_answered_and_leave_nothing_behind(
    calls: list[tuple[int, bool]], held: set[int], cancelled: set[int]
) -> None:
    weather = Weather(held)

    async def transact(build: Any, *, patient: bool, deadline: float | None = None) -> Any:
        await asyncio.sleep(0)
        return weather.transact(build, patient=patient)

    async def main() -> list[Any]:
        group = tasks_of(transact)
        tasks = [
            asyncio.create_task(group.run(call(key, number, bad=bad)))
            for number, (key, bad) in enumerate(calls)
        ]
        await asyncio.sleep(0)
        for number in cancelled & set(range(len(tasks))):
            tasks[number].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*tasks_in(group))
        # Since Python 3.12, gather() does not wait for the callbacks of a task that is done.
        await asyncio.sleep(0)
        assert group.is_idle
        assert not group._held
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


class TestInterrupted:
    def test_a_batch_that_is_cancelled_before_it_began_begins_again(self) -> None:
        async def transact(build: Any, *, patient: bool, deadline: float | None = None) -> Any:
            del patient
            return answered(build)

        async def main() -> list[Any]:
            group = tasks_of(transact)
            tasks = [asyncio.create_task(group.run(item(number))) for number in range(3)]
            # Each has asked; the batch has not begun yet.
            await asyncio.sleep(0)
            for task in tasks_in(group):
                task.cancel()
            answers = await asyncio.gather(*tasks)
            await asyncio.gather(*tasks_in(group))
            assert group.is_idle
            return list(answers)

        assert asyncio.run(main()) == [0, 1, 2]

    def test_a_loop_that_ends_in_the_middle_ends(self) -> None:
        """Who catches its cancellation may still ask for something."""
        asked: list[Any] = []

        async def transact(build: Any, *, patient: bool, deadline: float | None = None) -> Any:
            del patient
            answers = answered(build)
            if answers == "first" or "first" in answers:
                await asyncio.Event().wait()
            return answers

        async def caller(group: TaskGroup) -> None:
            try:
                await group.run(item("first"))
            except asyncio.CancelledError:
                asked.append(await group.run(item("last words")))
                raise

        async def main() -> None:
            group = tasks_of(transact)
            asked_for = [asyncio.create_task(caller(group)) for _ in range(3)]
            await asyncio.wait(asked_for, timeout=0)

        asyncio.run(main())

        assert asked == ["last words"] * 3


def test_more_calls_than_a_batch_can_take_are_all_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ThreadGroup, "largest", 2)
    start = threading.Barrier(16)
    group = threads_of(Weather(set()).transact)
    answers: list[Any] = [None] * 16

    def work(number: int) -> None:
        start.wait()
        for _ in range(20):
            answers[number] = group.run(call(number, number, bad=False))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [(number, number) for number in range(16)]
