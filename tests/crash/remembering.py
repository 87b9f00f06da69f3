"""Deaths while the history of jobs is written, and while it goes with them."""

from typing import Any, ClassVar

from onefold import Delivery, Onefold, Retention
from onefold.effects.run import Run
from onefold.model.lifecycle import Event
from onefold.operations.endings import Ending
from tests.crash.scenario import DAY, HOUR, Options, Scenario
from tests.fixtures.place import Place


class _Remembered(Scenario):
    """Jobs, and what was kept beside them when the act was done."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.ids: list[str] = []
        self.left: list[tuple[Any, ...]] = []

    def histories(self, onefold: Onefold) -> list[list[str]]:
        return [[a.outcome for a in onefold.deliveries.attempts(job_id)] for job_id in self.ids]

    def look(self, place: Place) -> None:
        """What is kept beside these jobs, past our own calls."""
        names = ", ".join(f"'{job_id}'" for job_id in self.ids)
        self.left = place.rows(
            f"select job_id, outcome from {{attempt}} where job_id in ({names})"
        ) + place.rows(f"select scope, surface from {{claim}} where scope in ({names})")


class EndInManyWays(_Remembered):
    """Every word of a batch is said, and every delivery remembered once; or none."""

    words: ClassVar[dict[Event, str]] = {
        Event.FAIL: "retried",
        Event.DEFER: "deferred",
        Event.BURY: "dead",
        Event.CANCEL: "cancelled",
    }

    def prepare(self, onefold: Onefold) -> None:
        for number in range(len(self.words)):
            self.enqueue(onefold, unique_key=f"{self.key} {number}")
        self.taken = self.take(onefold)
        self.ids = [job.id for job in self.taken]

    def act(self, onefold: Onefold, place: Place) -> object:
        ended = onefold.deliveries.end(
            [
                Ending(Delivery(job.id, job.fence), event, after=0)
                for event, job in zip(self.words, self.taken, strict=True)
            ]
        )
        assert {item.status for item in ended} in ({"accepted"}, {"already"})
        return ended

    def check(self, onefold: Onefold) -> None:
        assert self.histories(onefold) == [[word] for word in self.words.values()]


class RescueOfManyDeliveries(_Remembered):
    """The oldest of very many deliveries goes when the newest is remembered."""

    later = 2 * HOUR

    def prepare(self, onefold: Onefold) -> None:
        self.ids = [self.enqueue(onefold)]
        for _ in range(50):
            onefold.deliveries.defer(self.take(onefold), after=0 * HOUR)
        self.take(onefold)

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.deliveries.rescue()

    def check(self, onefold: Onefold) -> None:
        fences = [attempt.fence for attempt in onefold.deliveries.attempts(self.ids[0])]
        assert fences == list(range(2, 52))
        assert self.histories(onefold)[0][-2:] == ["deferred", "lease expired"]


class ReplayOfACompletedJob(_Remembered):
    """The delivery that completed it is remembered with the replay, or not yet."""

    def prepare(self, onefold: Onefold) -> None:
        self.ids = [self.enqueue(onefold)]
        onefold.deliveries.finish(self.take(onefold))

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.replay(self.ids[0], fresh=True)

    def check(self, onefold: Onefold) -> None:
        (job,) = self.jobs(onefold)
        assert (job.state, job.generation) == ("ready", 1)
        assert self.histories(onefold) == [["completed"]]


class _Gone(_Remembered):
    """Dead letters with a history and a step; both go with them, and nothing of them stays."""

    options: ClassVar[Options] = {}

    def prepare(self, onefold: Onefold) -> None:
        self.ids = [
            self.enqueue(onefold, unique_key=f"{self.key} {number}", **self.options)
            for number in range(3)
        ]
        for job in (taken := self.take(onefold)):
            run = Run(onefold.context, job, lease=HOUR, worker="crash")  # pyright: ignore[reportPrivateUsage]
            run.step("charge", lambda: "receipt")
            with run.once("mail"):
                pass
        onefold.deliveries.retry(taken, after=0 * HOUR)
        self.taken = self.take(onefold)

    def check(self, onefold: Onefold) -> None:
        assert self.jobs(onefold) == []
        assert self.left == []


class DropDeadLetters(_Gone):
    def prepare(self, onefold: Onefold) -> None:
        super().prepare(onefold)
        onefold.deliveries.bury(self.taken, reason="hopeless")

    def act(self, onefold: Onefold, place: Place) -> object:
        deleted = onefold.dead.delete(queue=self.key)
        self.look(place)
        return deleted


class PruneWithHistory(_Gone):
    later = 31 * DAY

    def prepare(self, onefold: Onefold) -> None:
        super().prepare(onefold)
        onefold.deliveries.bury(self.taken, reason="hopeless")

    def act(self, onefold: Onefold, place: Place) -> object:
        pruned = onefold.deliveries.prune()
        self.look(place)
        return pruned


class BuryUnkept(_Gone):
    """Retention 0: what was remembered goes with the end, in the same transaction."""

    options: ClassVar[Options] = {"retention": Retention(dead=0 * HOUR)}

    def act(self, onefold: Onefold, place: Place) -> object:
        ended = onefold.deliveries.bury(self.taken, reason="hopeless")
        self.look(place)
        return ended


SCENARIOS: list[type[Scenario]] = [
    EndInManyWays, RescueOfManyDeliveries, ReplayOfACompletedJob, DropDeadLetters,
    PruneWithHistory, BuryUnkept,
]  # fmt: skip
