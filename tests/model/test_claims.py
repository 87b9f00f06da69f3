"""Claims, `once` and locks against the model: any order of calls, on both databases."""

from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from onefold import Busy, KeyReused, LeaseLost, OutcomeUnknown
from onefold.claims import Claim, Done, Mismatch, NotDone, Replay, Unknown, Won
from onefold.effects.lock import Lock
from tests.model.claim_model import Attempt, ClaimModel, Place, Said, Wish
from tests.model.store import LENGTH, SHRINKING, Store, moment, seconds

if TYPE_CHECKING:
    from onefold.model.claim import Takeover

KEYS = st.sampled_from(["a", "a", "a", "b"])
WISHES = st.builds(
    Wish,
    fingerprint=st.sampled_from([None, "f", "f", "g"]),
    lease=st.sampled_from([5, 60]),
    takeover=st.sampled_from(["rerun", "resume", "refuse"]),
    retention=st.sampled_from([None, 10, 60]),
)
RESULTS = st.sampled_from([None, 1, {"paid": True}])
SPANS = st.sampled_from([5, 60])


@dataclass(eq=False)
class Winner:
    """An attempt that won, on both sides."""

    attempt: Attempt
    claim: Claim


@dataclass(eq=False)
class Holder:
    """A lock that was taken, in a context of its own: as by another task."""

    attempt: Attempt
    lock: Lock
    context: Context
    given_back: bool = False


class Interrupted(BaseException):
    """The process ends in the middle of the work."""


class Failed(Exception):
    """The work fails."""


def _place(key: str) -> Place:
    return ("once", "pay", key)


def _span(seconds: int | None) -> Any:
    return None if seconds is None else timedelta(seconds=seconds)


class ClaimMachine(RuleBasedStateMachine):
    """Every call goes to the engine and to the model; both must say and store the same."""

    winners = Bundle("winners")
    holders = Bundle("holders")

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.onefold = store.onefold
        self.model = ClaimModel(now=0)

    def teardown(self) -> None:
        self.store.clear()

    @rule(by=st.sampled_from([1, 5, 10, 50, 3600, 2 * 86_400]))
    def let_time_pass(self, by: int) -> None:
        self.store.now += by
        self.model.now += by

    @rule(target=winners, key=KEYS, wish=WISHES)
    def claim(self, key: str, wish: Wish) -> MultipleResults[Winner]:
        answer = self.onefold.claim(
            "pay",
            key,
            fingerprint=wish.fingerprint,
            lease=_span(wish.lease),
            takeover=wish.takeover,  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            retention=_span(wish.retention),
        )

        return self._compare(_place(key), wish, answer)

    def _compare(self, place: Place, wish: Wish, answer: object) -> MultipleResults[Winner]:
        said = self.model.ask(place, wish)
        match answer:
            case Won(claim):
                assert said.answer == "won"
                assert claim.resumed == (said.detail is not None)
                assert not claim.resumed or claim.id == said.detail
                attempt = self.model.win(place, wish, claim.id, claim.fence)
                return multiple(Winner(attempt, claim))
            case Replay(result):
                assert said == Said("replay", result)
            case Busy(retry_after):
                assert said == Said("busy", retry_after.total_seconds())
            case Mismatch():
                assert said == Said("mismatch")
            case Unknown(_, _, since):
                assert said.answer == "unknown"
                assert since == moment(cast("int", said.detail))
            case _:
                raise AssertionError(answer)
        return multiple()

    @rule(winner=winners, result=RESULTS)
    def settle(self, winner: Winner, result: object) -> None:
        accepted = _holds(lambda: self.onefold.keys.settle(winner.claim, result))

        assert accepted == self.model.settle(winner.attempt, result)

    @rule(winner=winners)
    def release(self, winner: Winner) -> None:
        assert self.onefold.keys.release(winner.claim) == self.model.release(winner.attempt)

    @rule(winner=winners, lease=SPANS)
    def renew(self, winner: Winner, lease: int) -> None:
        until = self.onefold.keys.renew(winner.claim, lease=timedelta(seconds=lease))

        expected = self.model.renew(winner.attempt, lease)
        assert until == (None if expected is None else moment(expected))

    @rule(winner=winners)
    def guard(self, winner: Winner) -> None:
        with self.store.transaction() as connection:
            holds = _holds(lambda: self.onefold.within(connection).guard(winner.claim))

        assert holds == self.model.holds(winner.attempt)

    @rule(key=KEYS, result=RESULTS)
    def force_settle(self, key: str, result: object) -> None:
        forced = self.onefold.keys.force_settle("pay", key, result)

        assert forced == self.model.force_settle(_place(key), result)

    @rule(key=KEYS)
    def force_release(self, key: str) -> None:
        assert self.onefold.keys.force_release("pay", key) == self.model.force_release(_place(key))

    @rule(
        key=KEYS,
        wish=WISHES,
        end=st.sampled_from(["return", "return", "fail", "interrupt"]),
        verdict=st.sampled_from(["nobody asked", "done", "not done", "cannot tell"]),
        result=RESULTS,
    )
    def once(self, key: str, wish: Wish, end: str, verdict: str, result: object) -> None:
        found: dict[str, Done | NotDone | None]
        found = {"done": Done("verified"), "not done": NotDone(), "cannot tell": None}
        seen: list[Said] = []
        attempts: list[Attempt] = []

        def work() -> None:
            with self.onefold.once(
                "pay",
                key,
                fingerprint=wish.fingerprint,
                lease=_span(wish.lease),
                takeover=cast("Takeover", wish.takeover),
                retention=_span(wish.retention),
                verify=(lambda _: found[verdict]) if verdict in found else None,
            ) as claim:
                assert claim is not None
                if claim.claim is None:
                    seen.append(Said("replay", claim.result))
                    return
                seen.append(Said("won"))
                attempts.append(
                    self.model.win(_place(key), wish, claim.claim.id, claim.claim.fence)
                )
                claim.result = result
                _end(end)

        expected = self._expected(_place(key), wish, verdict)
        refused = _refusal(work)

        assert (seen or [refused])[0].answer == expected.answer
        assert expected.answer != "replay" or seen[0] == expected
        for attempt in attempts:
            self._leave(attempt, end, result)

    def _expected(self, place: Place, wish: Wish, verdict: str) -> Said:
        """What `once` comes to, with what `verify` finds out."""
        said = self.model.ask(place, wish)
        if said.answer != "unknown" or verdict in {"nobody asked", "cannot tell"}:
            return said
        if verdict == "not done":
            return Said("won")
        self.model.force_settle(place, "verified")
        return Said("replay", "verified")

    def _leave(self, attempt: Attempt, end: str, result: object) -> None:
        match end:
            case "return":
                self.model.settle(attempt, result)
            case "fail":
                self.model.release(attempt)
            case _:
                pass  # nobody knows how far it came: the lease runs out

    @rule(
        key=KEYS,
        fingerprint=st.sampled_from([None, "f", "g"]),
        retention=st.sampled_from([None, 10]),
        result=RESULTS,
        commits=st.booleans(),
    )
    def claim_in_a_transaction(
        self,
        key: str,
        fingerprint: str | None,
        retention: int | None,
        result: object,
        *,
        commits: bool,
    ) -> None:
        wish = Wish(fingerprint, lease=0, retention=retention)
        with self.store.transaction() as connection:
            within = self.onefold.within(connection)
            answer = within.claim("pay", key, fingerprint=fingerprint, retention=_span(retention))
            if isinstance(answer, Won):
                within.keys.settle(answer.claim, result)
            if commits:
                connection.commit()

        if commits or not isinstance(answer, Won):
            self._compare(_place(key), wish, answer)
        if commits and isinstance(answer, Won):
            entry = self.model.entries[_place(key)]
            assert entry.attempt is not None
            self.model.settle(entry.attempt, result)

    @rule(target=holders, name=st.sampled_from(["door", "door", "gate"]), ttl=SPANS)
    def acquire(self, name: str, ttl: int) -> MultipleResults[Holder]:
        place, wish = ("lock", "", name), Wish(lease=ttl, takeover="rerun")
        lock, context = self.onefold.lock(name, ttl=timedelta(seconds=ttl)), copy_context()
        said = self.model.ask(place, wish)
        busy: Busy | None = None
        try:
            context.run(lock.acquire)
        except Busy as answer:
            busy = answer

        if busy is not None:
            assert said == Said("busy", busy.retry_after.total_seconds())
            return multiple()
        assert said.answer == "won"
        attempt = self.model.win(place, wish, lock.claim.id, lock.fence)
        return multiple(Holder(attempt, lock, context))

    @rule(holder=holders)
    def give_back(self, holder: Holder) -> None:
        released = holder.context.run(holder.lock.release)

        expected = not holder.given_back and self.model.release(holder.attempt, strict=True)
        assert released == expected
        holder.given_back = True

    @rule(holder=holders)
    def hold_on(self, holder: Holder) -> None:
        renewed = _holds(lambda: holder.context.run(holder.lock.renew))

        ttl = holder.lock._ttl // timedelta(seconds=1)
        expected = None if holder.given_back else self.model.renew(holder.attempt, ttl)
        assert renewed == (expected is not None)

    @rule(name=st.sampled_from(["door", "gate"]))
    def unlock(self, name: str) -> None:
        assert self.onefold.keys.unlock(name) == self.model.force_release(("lock", "", name))

    @rule()
    def sweep(self) -> None:
        # More than the model's: what was released leaves a row behind for a while.
        assert self.onefold.deliveries.sweep() >= self.model.sweep()

    @invariant()
    def the_same_is_stored(self) -> None:
        rows = self.store.rows(
            "select surface, scope, key, state, id, fence, fingerprint, lease_until, expires_at,"
            " result from {claim}"
        )
        stored = {
            (surface, scope, key): (
                state == 1,
                str(claim_id),
                fingerprint,
                seconds(lease),
                seconds(expires),
                result,
            )
            for surface, scope, key, state, claim_id, _, fingerprint, lease, expires, result in rows
            if state != 2
        }
        assert stored == {
            place: (
                entry.settled,
                entry.id,
                entry.wish.fingerprint,
                None if entry.settled else entry.lease_until,
                entry.expires_at,
                _text(entry.result) if entry.settled else None,
            )
            for place, entry in self.model.entries.items()
        }
        for *place, _, _, fence, _, _, _, _ in rows:
            name = cast("Place", tuple(place))
            assert fence >= self.model.highest[name]
            self.model.highest[name] = fence


def _text(result: object) -> str:
    return {"None": "null", "1": "1", "verified": '"verified"'}.get(str(result), '{"paid":true}')


def _holds(call: Callable[[], object]) -> bool:
    try:
        call()
    except LeaseLost:
        return False
    return True


def _end(how: str) -> None:
    if how == "fail":
        raise Failed
    if how == "interrupt":
        raise Interrupted


def _refusal(work: Callable[[], None]) -> Said:
    try:
        work()
    except (Failed, Interrupted):
        return Said("won")
    except Busy:
        return Said("busy")
    except KeyReused:
        return Said("mismatch")
    except OutcomeUnknown:
        return Said("unknown")
    return Said("nothing")


@pytest.mark.timeout(SHRINKING)
def test_claims_once_and_locks_behave_as_the_model_says(store: Store) -> None:
    class MachineOnThisStore(ClaimMachine):
        def __init__(self) -> None:
            super().__init__(store)

    run_state_machine_as_test(MachineOnThisStore, settings=LENGTH)
