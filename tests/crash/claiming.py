"""Deaths while keys are claimed, settled and given back: where that is more than a statement."""

from datetime import timedelta
from typing import ClassVar

from onefold import Onefold
from onefold.claims import Busy, Claim, Replay, Won
from tests.crash.scenario import DAY, HOUR, Options, Scenario
from tests.fixtures.place import Place


class _Claimed(Scenario):
    """A key, held under a lease of an hour by somebody who may come back."""

    options: ClassVar[Options] = {"lease": HOUR, "takeover": "rerun"}

    def prepare(self, onefold: Onefold) -> None:
        self.claimed = self.claim(onefold)

    def claim(self, onefold: Onefold) -> Claim:
        answer = onefold.claim("crash", self.key, **self.options)
        assert isinstance(answer, Won), answer
        return answer.claim

    def ask(self, onefold: Onefold) -> object:
        return onefold.claim("crash", self.key, **self.options)

    def epilogue(self, onefold: Onefold) -> None:
        """No key leaked: once it is given back, it can be had again."""
        onefold.keys.force_release("crash", self.key)
        self.claim(onefold)


class TakeOver(_Claimed):
    later = 2 * HOUR

    def act(self, onefold: Onefold, place: Place) -> object:
        return isinstance(self.ask(onefold), Won | Busy)

    def check(self, onefold: Onefold) -> None:
        assert isinstance(self.ask(onefold), Busy)
        assert not onefold.keys.release(self.claimed)  # the first holder is fenced off


class Sweep(_Claimed):
    """What is over is forgotten; what is held, or promised to a living job, is not."""

    later = 2 * DAY

    def prepare(self, onefold: Onefold) -> None:
        answer = onefold.claim("crash", self.key, lease=HOUR, retention=HOUR)
        assert isinstance(answer, Won)
        onefold.keys.settle(answer.claim)
        held = onefold.claim("crash", self.key + " held", lease=HOUR, retention=HOUR)
        assert isinstance(held, Won)
        self.job = self.enqueue(onefold, idempotency_key=self.key)

    def act(self, onefold: Onefold, place: Place) -> object:
        return onefold.deliveries.sweep()

    def check(self, onefold: Onefold) -> None:
        assert not onefold.keys.force_release("crash", self.key)
        assert self.enqueue(onefold, idempotency_key=self.key) == self.job
        held = onefold.claim("crash", self.key + " held", lease=HOUR)
        assert not isinstance(held, Won)


class OnceLeased(_Claimed):
    """The claim commits first, the work follows, and then the result: two transactions.

    When it is tried again its lease is over, and `rerun` takes over.
    """

    again = 2 * HOUR

    def prepare(self, onefold: Onefold) -> None:
        pass

    def act(self, onefold: Onefold, place: Place) -> object:
        with onefold.once("crash", self.key, **self.options) as claim:
            assert claim is not None
            if claim.won:
                claim.result = "done"
        assert claim.result == "done"
        return None

    def check(self, onefold: Onefold) -> None:
        answer = self.ask(onefold)
        assert isinstance(answer, Replay)
        assert answer.result == "done"


class OnceJoined(OnceLeased):
    """The claim, the work and the result are one transaction: exactly once."""

    def act(self, onefold: Onefold, place: Place) -> object:
        with (
            place.transaction() as connection,
            onefold.within(connection).once("crash", self.key) as claim,
        ):
            assert claim is not None
            if claim.won:
                connection.execute(f"insert into {place.effects} (name) values ('{self.key}')")
                claim.result = "done"
        assert claim.result == "done"
        effects = place.rows(f"select name from {place.effects} where name = '{self.key}'")
        assert effects == [(self.key,)]
        return None


class Lock(Scenario):
    """A lock whose holder died is free when its time is over."""

    again = 2 * HOUR

    def act(self, onefold: Onefold, place: Place) -> object:
        with onefold.lock(self.key, ttl=HOUR) as lock:
            return lock.fence

    def check(self, onefold: Onefold) -> None:
        with onefold.lock(self.key, ttl=HOUR, wait=timedelta(0)):
            pass

    def epilogue(self, onefold: Onefold) -> None:
        assert not onefold.keys.unlock(self.key)


SCENARIOS: list[type[Scenario]] = [
    TakeOver, Sweep, OnceLeased, OnceJoined, Lock,
]  # fmt: skip
