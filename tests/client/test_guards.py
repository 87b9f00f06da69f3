"""`once`, `lock` and `step` over HTTP, each in its own colour."""

import asyncio
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from onefold import (
    Busy,
    Done,
    InvalidInput,
    KeyReused,
    LeaseLost,
    NotDone,
    OutcomeUnknown,
)
from onefold.client import AsyncClient, Client
from onefold.errors import UsageError
from tests.client.running import Stage
from tests.kill.workers import until

TTL = timedelta(seconds=9)
"""Of locks that are to be renewed by themselves."""


def lease_of_lock(stage: Stage) -> datetime:
    """When it ends."""
    (key,) = stage.onefold.keys.find(surface="lock")
    assert key.lease_until is not None
    return key.lease_until


def test_once_runs_once_and_gives_the_result_again(stage: Stage) -> None:
    with Client(stage.url) as client:
        with client.once("import", "a") as first:
            assert first is not None
            assert first.won
            first.result = {"rows": 3}
        with client.once("import", "a") as second:
            assert second is not None
            assert (second.replayed, second.result) == (True, {"rows": 3})


def test_a_busy_key_is_raised_skipped_or_waited_for(stage: Stage) -> None:
    with Client(stage.url) as client, client.once("import", "a"):
        with pytest.raises(Busy), client.once("import", "a"):
            pass
        with client.once("import", "a", busy="skip") as skipped:
            assert skipped is None
        with pytest.raises(Busy), client.once("import", "a", wait=timedelta(milliseconds=20)):
            pass


def test_another_request_under_the_key_and_a_vanished_one_are_raised(stage: Stage) -> None:
    with Client(stage.url) as client:
        with client.once("import", "a", fingerprint="f"):
            pass
        with pytest.raises(KeyReused), client.once("import", "a", fingerprint="g"):
            pass
        client.claim("import", "b", lease=timedelta(milliseconds=1))
        while isinstance(client.claim("import", "b"), Busy):
            pass
        with pytest.raises(OutcomeUnknown) as unknown, client.once("import", "b"):
            pass
        assert unknown.value.since is not None


def test_functions_are_decorated(stage: Stage) -> None:
    with Client(stage.url) as client:

        @client.once("square")
        def square(number: int) -> list[int]:
            return [*range(number)]

        @client.once("x")
        async def awaited() -> None: ...

        assert [square(3), square(number=3)] == [[0, 1, 2]] * 2
        assert len(stage.onefold.keys.find(surface="once")) == 1
        with pytest.raises(UsageError, match="cannot await"):
            asyncio.run(awaited())
        wrong: list[Any] = [{"busy": "wait"}, {"wait": 3}, {"verify": len}]
        for options in wrong:
            with pytest.raises(InvalidInput):
                client.once("x", "y", **options)


async def test_tasks_have_them_too(stage: Stage) -> None:
    job = await asyncio.to_thread(stage.taken)
    bank = Bank(None, Done("receipt"))
    async with AsyncClient(stage.url) as client, AsyncClient(stage.url) as rival:
        steps = client.steps(job.id, fence=job.fence).using(unsafe=True, verify=bank.afind)
        with pytest.raises(OutcomeUnknown):
            await steps.step("pay", bank.apay)
        assert await steps.step("pay", bank.apay) == "receipt"

        @client.once("square")
        async def square(number: int) -> int:
            return number**2

        assert [await square(3), await square(3)] == [9, 9]
        with pytest.raises(UsageError, match="cannot block"):
            client.once("x", "k")(lambda: 1)()
        async with client.once("import", "a"), client.once("import", "a", busy="skip") as skipped:
            assert skipped is None
        with pytest.raises(ZeroDivisionError):
            async with client.once("import", "b"):
                raise ZeroDivisionError

        async with client.lock("report", ttl=TTL) as lock:
            with pytest.raises(Busy):
                await rival.lock("report").aacquire()
            first = await asyncio.to_thread(lease_of_lock, stage)
            renewed = partial(until, lambda: lease_of_lock(stage) > first, "it is not renewed")
            await asyncio.to_thread(renewed)
            await lock.arenew()
            assert not lock.lost
        assert not lock.is_held
    assert bank.calls == 1


def test_a_lock_is_held_by_one_with_a_growing_fence(stage: Stage) -> None:
    with Client(stage.url) as client:
        with client.lock("report") as lock:
            first = lock.fence
            lock.check()
            assert (lock.is_held, lock.lost) == (True, False)
            with pytest.raises(UsageError, match="in use"):
                lock.acquire()
            with pytest.raises(Busy), client.lock("report"):
                pass
            with pytest.raises(Busy), client.lock("report", wait=timedelta(milliseconds=20)):
                pass
        assert (lock.is_held, lock.lost, lock.release()) == (False, True, False)
        with pytest.raises(LeaseLost):
            lock.check()
        with pytest.raises(LeaseLost):
            _ = lock.fence
        with client.lock("report", wait=timedelta(seconds=5)) as again:
            assert again.fence > first


def test_a_lock_is_kept_up_for_longer_than_its_time(stage: Stage) -> None:
    with Client(stage.url) as client, client.lock("report", ttl=TTL) as lock:
        first = lease_of_lock(stage)
        until(lambda: lease_of_lock(stage) > first, "the lock is not renewed")
        assert lock.is_held
    assert not lock.is_held


def test_a_lock_that_an_operator_took_is_lost(stage: Stage) -> None:
    with Client(stage.url) as client, client.lock("report", ttl=timedelta(seconds=30)) as lock:
        assert client.keys.force_release("", "report", surface="lock")
        with pytest.raises(LeaseLost):
            lock.renew()
        assert lock.lost


def test_a_step_is_done_once_per_job(stage: Stage) -> None:
    job, calls = stage.taken(), list[int]()

    def charge(amount: int) -> dict[str, int]:
        calls.append(amount)
        return {"charged": amount}

    def nothing() -> None:
        """Gives nothing, which is a result, too."""

    with Client(stage.url) as client:
        for _ in range(2):
            steps = client.steps(job.id, fence=job.fence)
            assert steps.step("charge", charge, 5) == {"charged": 5}
            assert steps.step("charge", charge, 7) == {"charged": 7}
            assert steps.using(key="tip").step("charge", charge, 1) == {"charged": 1}
            assert steps.step("nothing", nothing) is None
        assert calls == [5, 7, 1]
        with pytest.raises(KeyReused):
            client.steps(job.id, fence=job.fence).step("charge", charge, 6)
        with pytest.raises(LeaseLost):
            client.steps(job.id, fence=job.fence + 1).step("mail", charge, 1)
        with pytest.raises(InvalidInput):
            client.steps(job.id, fence=0)


def test_a_step_that_failed_is_tried_again(stage: Stage) -> None:
    job, tries = stage.taken(), list[int]()

    def flaky() -> int:
        tries.append(1)
        if len(tries) < 2:
            raise ZeroDivisionError
        return len(tries)

    with Client(stage.url) as client:
        steps = client.steps(job.id, fence=job.fence)
        with pytest.raises(ZeroDivisionError):
            steps.step("flaky", flaky)
        assert steps.step("flaky", flaky) == 2
        with pytest.raises(InvalidInput, match="JSON"):
            steps.using(unsafe=True).step("unstorable", lambda: {1j})
        # Another object asks the server.
        with pytest.raises(OutcomeUnknown):
            client.steps(job.id, fence=job.fence).using(unsafe=True).step("unstorable", print)
    labels = [step.label for step in stage.onefold.deliveries.steps(job.id)]
    assert labels == ["flaky", "unstorable"]


class Bank:
    """Pays, and loses its answer; cannot tell at first."""

    def __init__(self, *verdicts: Any, error: type[Exception] = TimeoutError) -> None:
        self.calls = 0
        self.asked: list[str] = []
        self._verdicts = list(verdicts)
        self._error = error

    def pay(self) -> str:
        self.calls += 1
        raise self._error

    def find(self, key: str) -> Any:
        self.asked.append(key)
        verdict = self._verdicts.pop(0)
        if isinstance(verdict, OSError):
            raise verdict
        return verdict

    async def apay(self) -> str:
        return self.pay()

    async def afind(self, key: str) -> Any:
        return self.find(key)


class Paying:
    """A step over HTTP."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.job = stage.taken()

    def pay(self, bank: Bank, **options: Any) -> Any:
        with Client(self.stage.url) as client:
            steps = client.steps(self.job.id, fence=self.job.fence)
            return steps.using(unsafe=True, **options).step("pay", bank.pay)

    def again(self) -> None:
        self.stage.onefold.deliveries.retry([self.job], after=timedelta(0))
        self.job = self.stage.taken_again()


@pytest.fixture
def paying(stage: Stage) -> Paying:
    return Paying(stage)


def test_verify_finds_out_in_the_same_attempt_and_in_later_ones(paying: Paying) -> None:
    bank = Bank(None, OSError("down"), None, Done("receipt"))
    for _ in range(3):
        with pytest.raises(OutcomeUnknown) as raised:
            paying.pay(bank, verify=bank.find)
        assert raised.value.verifiable
        paying.again()
    assert paying.pay(bank, verify=bank.find) == "receipt"
    assert paying.pay(bank, verify=bank.find) == "receipt"
    assert bank.calls == 1
    assert set(bank.asked) == {f"{paying.job.id}:pay"}
    assert paying.pay(Bank(Done("at once"))) == "receipt"


def test_a_step_that_was_not_done_is_done_again(paying: Paying) -> None:
    bank = Bank(NotDone(), None, NotDone())
    with pytest.raises(TimeoutError):
        paying.pay(bank, verify=bank.find)
    with pytest.raises(OutcomeUnknown):
        paying.pay(bank, verify=bank.find)
    paying.again()
    with pytest.raises(NotDone):
        paying.pay(Bank(error=NotDone), verify=bank.find)
    with pytest.raises(ConnectionRefusedError):
        paying.pay(Bank(error=ConnectionRefusedError), not_done=ConnectionRefusedError)
    (step,) = paying.stage.onefold.deliveries.steps(paying.job.id)
    assert (bank.calls, len(bank.asked), step.attempts) == (2, 3, 4)


def test_while_one_try_finds_out_another_one_is_busy(paying: Paying) -> None:
    """Otherwise both could find that nothing was paid, and pay one after the other."""
    first, second, other = Bank(), Bank(error=NotDone), Bank(NotDone())
    with pytest.raises(OutcomeUnknown):
        paying.pay(first)
    paying.again()

    def find(_: str) -> NotDone:
        with pytest.raises(Busy):
            paying.pay(other, verify=other.find)
        return NotDone()

    with pytest.raises(NotDone):
        paying.pay(second, verify=find)
    assert (second.calls, other.calls, other.asked) == (1, 0, [])


def test_a_step_whose_failure_cannot_be_told_says_so(stage: Stage) -> None:
    job = stage.taken()

    def lost() -> None:
        stage.onefold.deliveries.retry([job], after=timedelta(0))
        stage.taken_again()
        raise ZeroDivisionError

    with Client(stage.url) as client, pytest.raises(ZeroDivisionError) as failed:
        client.steps(job.id, fence=job.fence).step("lost", lost)
    assert "could not be released" in failed.value.__notes__[0]
