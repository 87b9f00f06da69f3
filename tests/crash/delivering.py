"""Deaths while jobs are taken, and while deliveries end."""

from datetime import timedelta
from typing import ClassVar

from onefold import Onefold, Retention
from tests.crash.scenario import DAY, HOUR, WORKER, Options, Scenario
from tests.fixtures.place import Place

NOW = timedelta(0)


class Take(Scenario):
    """Also with a key that the take gives up."""

    def prepare(self, onefold: Onefold) -> None:
        self.enqueue(onefold, unique_while="queued")
        self.enqueue(onefold, unique_key=self.key + "a", priority=1)
        self.enqueue(onefold, unique_key=None, priority=2)

    def act(self, onefold: Onefold, place: Place) -> object:
        return self.take(onefold)

    def check(self, onefold: Onefold) -> None:
        assert self.states(onefold) == ["running"] * 3
        assert [job.fence for job in self.jobs(onefold)] == [1, 1, 1]

    def epilogue(self, onefold: Onefold) -> None:
        assert onefold.enqueue("crash", unique_key=self.key).inserted
        assert onefold.enqueue("crash", unique_key=self.key + "a").duplicate


class _Delivered(Scenario):
    """One job that is running."""

    options: ClassVar[Options] = {}

    def prepare(self, onefold: Onefold) -> None:
        self.enqueue(onefold, "first", **self.options)
        self.taken = self.take(onefold)


class _Followed(_Delivered):
    """One that is running, and a request that waits behind it."""

    def prepare(self, onefold: Onefold) -> None:
        super().prepare(onefold)
        self.enqueue(onefold, "next", on_duplicate="rerun", **self.options)

    def check(self, onefold: Onefold) -> None:
        assert self.payloads(onefold) == [("completed", "first"), ("ready", "next")]


class FinishWithSuccessor(_Followed):
    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.deliveries.finish(self.taken)


class FinishWithSuccessorThatInheritsTheKey(FinishWithSuccessor):
    """`exists`: the key goes from the completed job to its successor, and to nobody else."""

    options: ClassVar[Options] = {"unique_while": "exists"}
    reusable = False


class FinishUnkeptButPromised(_Delivered):
    """Retention 0, but the key is promised for longer: a tombstone holds it."""

    options: ClassVar[Options] = {"retention": Retention(completed=NOW), "unique_for": DAY}
    reusable = False

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.deliveries.finish(self.taken)

    def check(self, onefold: Onefold) -> None:
        assert self.jobs(onefold) == []


class FinishAndTake(_Delivered):
    """The last batch is finished and the next taken, together or not at all."""

    def prepare(self, onefold: Onefold) -> None:
        super().prepare(onefold)
        self.enqueue(onefold, "second", unique_key=None)

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.deliveries.finish_and_take(self.taken, [self.key], **WORKER)

    def check(self, onefold: Onefold) -> None:
        assert self.states(onefold) == ["completed", "running"]


class Rescue(Scenario):
    """One goes round again, one was on its last attempt, one expired while it waited."""

    later = 2 * HOUR

    def prepare(self, onefold: Onefold) -> None:
        last, expiring = self.key + " last", self.key + " expiring"
        self.enqueue(onefold, "again")
        self.enqueue(onefold, "last", unique_key=last, max_attempts=1)
        self.take(onefold)
        self.enqueue(onefold, "next", unique_key=last, on_duplicate="rerun")
        self.enqueue(onefold, "expiring", unique_key=expiring, expires_at=self.clock() + HOUR)

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.deliveries.rescue()

    def check(self, onefold: Onefold) -> None:
        assert self.payloads(onefold) == [
            ("dead", "expiring"), ("dead", "last"), ("ready", "next"), ("retrying", "again"),
        ]  # fmt: skip
        assert onefold.enqueue("crash", unique_key=self.key).duplicate
        assert onefold.enqueue("crash", unique_key=self.key + " last").duplicate


SCENARIOS: list[type[Scenario]] = [
    Take, FinishWithSuccessor, FinishWithSuccessorThatInheritsTheKey, FinishUnkeptButPromised,
    FinishAndTake, Rescue,
]  # fmt: skip
