"""Deaths while an operator, or a chore, is at work."""

from datetime import timedelta

from onefold import Onefold
from tests.crash.scenario import DAY, HOUR, Scenario
from tests.fixtures.place import Place


class CancelRunning(Scenario):
    """What waits behind it becomes a job, however it ends."""

    def prepare(self, onefold: Onefold) -> None:
        self.holder = self.enqueue(onefold)
        self.take(onefold)
        self.enqueue(onefold, "next", on_duplicate="rerun")

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.cancel(self.holder)

    def check(self, onefold: Onefold) -> None:
        assert self.states(onefold) == ["cancelled", "ready"]


class ReplayMany(Scenario):
    def prepare(self, onefold: Onefold) -> None:
        for suffix in ("", "a", "b"):
            self.enqueue(onefold, unique_key=self.key + suffix)
        onefold.deliveries.bury(self.take(onefold), reason="hopeless")
        self.enqueue(onefold, unique_key=self.key + "a")

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.dead.replay(queue=self.key)

    def check(self, onefold: Onefold) -> None:
        assert self.states(onefold) == ["dead", "ready", "ready", "ready"]


class Delete(Scenario):
    """Stores the successor that waited, which keeps the scope of the deleted job."""

    reusable = False

    def prepare(self, onefold: Onefold) -> None:
        self.holder = self.enqueue(onefold, unique_while="exists")
        self.take(onefold)
        self.enqueue(onefold, "next", on_duplicate="rerun")

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.delete(self.holder)

    def check(self, onefold: Onefold) -> None:
        assert [job.payload for job in self.jobs(onefold)] == ["next"]


class Prune(Scenario):
    """One record goes; of the other a tombstone stays, whose key is promised for longer."""

    later = 2 * DAY

    def prepare(self, onefold: Onefold) -> None:
        self.enqueue(onefold)
        self.promised = self.key + " promised"
        self.holder = self.enqueue(onefold, unique_key=self.promised, unique_for=timedelta(days=30))
        self.enqueue(onefold)  # a duplicate, whose note goes with the record
        onefold.deliveries.finish(self.take(onefold))

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.deliveries.prune()

    def check(self, onefold: Onefold) -> None:
        assert self.jobs(onefold) == []
        assert onefold.enqueue("crash", unique_key=self.promised).id == self.holder


class Fold(Scenario):
    """No note is lost, and none is counted twice."""

    def prepare(self, onefold: Onefold) -> None:
        self.holder = self.enqueue(onefold)
        for number in range(3):
            self.enqueue(onefold, request_id=f"request {number}")

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.deliveries.fold()

    def check(self, onefold: Onefold) -> None:
        noted = onefold.keys.duplicates(self.holder)
        assert noted.count == 3
        assert len({one.request_id for one in noted.recent}) == 3


class Erase(Scenario):
    def prepare(self, onefold: Onefold) -> None:
        self.enqueue(onefold, idempotency_key=self.key, unique_while="exists")
        self.enqueue(onefold)
        with onefold.once("crash", self.key):
            pass

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.keys.erase(key=self.key)

    def check(self, onefold: Onefold) -> None:
        assert self.jobs(onefold) == []

    def epilogue(self, onefold: Onefold) -> None:
        assert onefold.enqueue("crash", idempotency_key=self.key, unique_key=self.key).inserted
        with onefold.once("crash", self.key, lease=HOUR) as claim:
            assert claim is not None
            assert claim.won


SCENARIOS: list[type[Scenario]] = [
    CancelRunning, ReplayMany, Delete, Prune, Fold, Erase,
]  # fmt: skip
