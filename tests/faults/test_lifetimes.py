"""Threads, event loops, forks, closing, cancelling: one Onefold object lives through them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from onefold import Closed, Onefold
from tests.faults.callers import MakeCaller, run
from tests.faults.servers import PATIENCE, Sessions, key_held, until, url_as
from tests.fixtures.place import Place


class TestPools:
    def test_nothing_is_connected_before_it_is_used_and_after_it_is_closed(
        self, sessions: Sessions, migrated: str, make_caller: MakeCaller
    ) -> None:
        caller = make_caller(Onefold(sessions.url, schema=migrated))
        caller.onefold.tenant("t")
        caller.onefold.lock("l")
        caller.onefold.once("o", "k")

        assert sessions.states() == []
        caller("enqueue", "mail")
        assert sessions.states() != []
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


class TestFork:
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
            for closes in (True, False):
                child = os.fork()
                if child == 0:
                    onefold.enqueue("mail")
                    if closes:
                        onefold.close()
                    sys.exit(0)
                assert os.waitpid(child, 0)[1] == 0
                onefold.enqueue("mail")
            assert before and set(before) <= set(pids()), (before, pids())
            print(len(onefold.find()))
        """
        plain = url_as(sessions.url, application_name="observer")
        assert run(script, sessions.url, migrated, sessions.name, plain) == ["5"]


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
        self,
        postgres_url: str,
        migrated: str,
        sessions: Sessions,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        # A second try would find the object closed.
        monkeypatch.setattr("onefold.databases.postgres.transaction.IMPATIENT", "60000")
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
