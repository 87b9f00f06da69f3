"""Threads, event loops, forks, closing, cancelling: one Onefold object lives through them."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import uuid4

import psycopg
import pytest

from onefold import Closed, Onefold
from tests.faults.callers import MakeCaller, run
from tests.faults.servers import PATIENCE, key_held, until, url_as
from tests.fixtures.place import Place


@pytest.fixture
def onefold(place: Place) -> Iterator[Onefold]:
    with place.open() as onefold:
        yield onefold


@dataclass(frozen=True)
class Sessions:
    """Our sessions on the server, told from all others by a name."""

    url: str
    name: str
    observer: psycopg.Connection

    def states(self) -> list[str]:
        return [state for _, state in self._rows()]

    def pids(self) -> set[int]:
        return {pid for pid, _ in self._rows()}

    def _rows(self) -> list[tuple[int, str]]:
        query = "select pid, state from pg_stat_activity where application_name = %s"
        return self.observer.execute(query, [self.name]).fetchall()


@pytest.fixture
def sessions(postgres_url: str, observer: psycopg.Connection) -> Sessions:
    name = f"lifetime_{uuid4().hex[:8]}"
    return Sessions(url_as(postgres_url, application_name=name), name, observer)


class TestPools:
    def test_nothing_is_connected_before_it_is_used(
        self, sessions: Sessions, migrated: str, make_caller: MakeCaller
    ) -> None:
        caller = make_caller(Onefold(sessions.url, schema=migrated))
        caller.onefold.tenant("t")
        caller.onefold.lock("l")
        caller.onefold.once("o", "k")

        assert sessions.states() == []
        caller("enqueue", "mail")
        assert sessions.states() != []

    def test_nothing_stays_connected_after_closing(
        self, sessions: Sessions, migrated: str, make_caller: MakeCaller
    ) -> None:
        caller = make_caller(Onefold(sessions.url, schema=migrated))
        caller("enqueue", "mail")

        caller("close")

        until(lambda: sessions.states() == [])

    def test_event_loops_that_ended_leave_no_sessions_behind(
        self, sessions: Sessions, migrated: str
    ) -> None:
        with Onefold(sessions.url, schema=migrated) as onefold:
            for _ in range(8):
                asyncio.run(onefold.aenqueue("mail"))

            until(lambda: len(sessions.pids()) <= 2)
            assert len(onefold.find()) == 8
        until(lambda: sessions.states() == [])

    def test_nothing_is_left_on_a_session(self, sessions: Sessions, migrated: str) -> None:
        with Onefold(sessions.url, schema=migrated) as onefold:
            onefold.enqueue("mail")
            onefold.claim("a", "b")

            assert set(sessions.states()) == {"idle"}


FORK = """
    import asyncio, os, sys
    from onefold import Onefold

    url, schema, ending, colour = sys.argv[1:]
    onefold = Onefold(url, schema=schema)

    def enqueue(key):
        if colour == "async":
            return asyncio.run(onefold.aenqueue("mail", unique_key=key))
        return onefold.enqueue("mail", unique_key=key)

    first = onefold.enqueue("mail", unique_key="parent")
    enqueue("before")
    child = os.fork()
    if child == 0:
        assert onefold.enqueue("mail", unique_key="parent").id == first.id
        assert enqueue("child").inserted
        onefold.deliveries.take(limit=1, worker="child", lease=__import__("datetime").timedelta(1))
        if ending == "close":
            onefold.close()
        os._exit(0) if ending == "_exit" else sys.exit(0)
    assert enqueue("meanwhile").inserted
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    assert not enqueue("child").inserted
    assert enqueue("after").inserted
    print(len(onefold.find()))
    onefold.close()
"""


class TestFork:
    @pytest.mark.prove
    @pytest.mark.parametrize("ending", ["_exit", "exit", "close"])
    def test_parent_and_child_both_go_on(self, place: Place, colour: str, ending: str) -> None:
        assert run(FORK, place.url, place.schema, ending, colour) == ["5"]

    def test_a_child_leaves_its_parents_sessions_alone(
        self, sessions: Sessions, migrated: str
    ) -> None:
        script = """
            import os, sys
            import psycopg
            from onefold import Onefold

            url, schema, name, observer_url = sys.argv[1:]
            observer = psycopg.connect(observer_url, autocommit=True)

            def pids():
                query = "select pid from pg_stat_activity where application_name = %s order by pid"
                return [row[0] for row in observer.execute(query, [name])]

            onefold = Onefold(url, schema=schema)
            onefold.enqueue("mail")
            onefold.find()
            before = pids()
            child = os.fork()
            if child == 0:
                onefold.enqueue("mail")
                onefold.close()
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            onefold.enqueue("mail")
            assert before and set(before) <= set(pids()), (before, pids())
            print(len(onefold.find()))
        """
        plain = url_as(sessions.url, application_name="observer")
        assert run(script, sessions.url, migrated, sessions.name, plain) == ["3"]


class TestClosing:
    @pytest.mark.parametrize("used", [True, False])
    def test_a_closed_object_says_so(
        self,
        place: Place,
        make_caller: MakeCaller,
        used: bool,  # noqa: FBT001
    ) -> None:
        caller = make_caller(place.open())
        if used:
            caller("enqueue", "mail")
        caller("close")
        caller("close")

        for target, name, *args in (
            (caller.onefold, "enqueue", "mail"),
            (caller.onefold, "find"),
            (caller.onefold, "claim", "a", "b"),
            (caller.onefold, "migrate"),
            (caller.onefold.deliveries, "rescue"),
        ):
            with pytest.raises(Closed, match="Make a new one"):
                caller.on(target, str(name), *args)

    def test_an_async_with_statement_closes(self, place: Place) -> None:
        async def use() -> Onefold:
            async with place.open() as onefold:
                await onefold.aenqueue("mail")
            with pytest.raises(Closed):
                await onefold.aenqueue("mail")
            return onefold

        closed = asyncio.run(use())
        with pytest.raises(Closed):
            closed.enqueue("mail")

    def test_a_call_that_is_under_way_is_answered_though_another_thread_closes(
        self, postgres_url: str, migrated: str, sessions: Sessions
    ) -> None:
        onefold = Onefold(sessions.url, schema=migrated)
        onefold.find()
        with ThreadPoolExecutor(1) as threads, key_held(postgres_url, migrated, "k"):
            under_way = threads.submit(onefold.enqueue, "mail", unique_key="k")
            until(lambda: "active" in sessions.states())
            onefold.close()

        assert under_way.result(PATIENCE).inserted


class TestCancelling:
    def test_a_cancelled_enqueue_leaves_no_transaction_open(
        self, postgres_url: str, migrated: str, sessions: Sessions
    ) -> None:
        async def cancel() -> bool:
            async with Onefold(sessions.url, schema=migrated) as onefold:
                await onefold.afind()
                with key_held(postgres_url, migrated, "k"):
                    task = asyncio.create_task(onefold.aenqueue("mail", unique_key="k"))
                    await asyncio.to_thread(until, lambda: "active" in sessions.states())
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    await asyncio.to_thread(until, lambda: set(sessions.states()) <= {"idle"})
                    other = await onefold.aenqueue("mail", unique_key="other")
                again = await onefold.aenqueue("mail", unique_key="k")
                return other.inserted and again.inserted

        assert asyncio.run(cancel())

    def test_many_cancelled_enqueues_leave_the_pool_usable(self, place: Place) -> None:
        async def cancel() -> int:
            async with place.open() as onefold:
                await onefold.afind()
                for turn in range(40):
                    task = asyncio.create_task(onefold.aenqueue("mail", unique_key=f"{turn}"))
                    for _ in range(turn % 13):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                answers = await asyncio.gather(
                    *(onefold.aenqueue("mail", unique_key=f"after {n}") for n in range(20))
                )
                return sum(answer.inserted for answer in answers)

        assert asyncio.run(cancel()) == 20


def test_a_burst_of_first_calls_opens_no_connection_each(postgres_url: str, migrated: str) -> None:
    async def burst() -> int:
        async with Onefold(postgres_url, schema=migrated) as onefold:
            answers = await asyncio.gather(*(onefold.aenqueue("email") for _ in range(300)))
        return len(answers)

    # More than the server has connections; the pool has ten.
    assert asyncio.run(burst()) == 300
