"""A scenario: what was there, what is done, what must be so afterwards, however often it died."""

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeAlias

from onefold import Job, Onefold
from tests.fixtures.place import Place

Options: TypeAlias = dict[str, Any]

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
WORKER: Any = {"worker": "crash", "lease": HOUR}


class Scenario:
    """Made once per death; sent to the child as it is."""

    later: ClassVar[timedelta] = timedelta(0)
    """How long after `prepare` the act happens."""
    again: ClassVar[timedelta] = timedelta(0)
    """How long after a death it is tried again."""
    migrated: ClassVar[bool] = True
    reusable: ClassVar[bool] = True
    """Whether the key can be used again once its holder has been cancelled."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._now = datetime.now(UTC)

    def open(self, place: Place) -> Onefold:
        """An object whose clock stands still."""
        return place.open(clock=self.clock)

    def clock(self) -> datetime:
        return self._now

    def pass_time(self, time: timedelta) -> None:
        self._now += time

    def prepare(self, onefold: Onefold) -> None:
        """What is there before."""

    def act(self, onefold: Onefold, place: Place) -> object:
        """What is done: the whole of a call, in the child that dies and again after its death."""
        raise NotImplementedError

    def check(self, onefold: Onefold) -> None:
        """What must be so once the act has been answered, however often it was tried."""
        raise NotImplementedError

    def epilogue(self, onefold: Onefold) -> None:
        """No key leaked: it is free when its holder has ended."""
        for job in self.jobs(onefold):
            if job.state in {"scheduled", "ready", "running", "retrying"}:
                onefold.cancel(job.id)
        again = onefold.enqueue("crash", unique_key=self.key, queue=self.key)
        assert again.inserted == self.reusable
        if again.inserted:
            assert onefold.enqueue("crash", unique_key=self.key).id == again.id

    # What the scenarios are made of.

    def enqueue(self, onefold: Any, payload: Any = None, **options: Any) -> str:
        options = {"unique_key": self.key, "queue": self.key, **options}
        return str(onefold.enqueue("crash", payload, **options).id)

    def take(self, onefold: Onefold, *, limit: int = 10) -> list[Job]:
        return onefold.deliveries.take([self.key], limit=limit, **WORKER)

    def jobs(self, onefold: Onefold) -> list[Job]:
        """All that is stored in the queue of this scenario, in no order."""
        return list(onefold.find(queue=self.key))

    def states(self, onefold: Onefold) -> list[str]:
        return sorted(job.state for job in self.jobs(onefold))

    def payloads(self, onefold: Onefold) -> list[tuple[str, Any]]:
        return sorted((job.state, job.payload) for job in self.jobs(onefold))
