"""Steps of a claim: what an attempt has done is not done again by the one who resumes it."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from onefold import (
    Fixed,
    InvalidInput,
    LeaseLost,
    Onefold,
    OutcomeUnknown,
    UsageError,
)
from onefold.claims import Claim, Won
from onefold.databases.handler_transaction import begin
from onefold.effects.claims import DatabaseClaims
from onefold.effects.step_log import StepLog
from onefold.effects.step_store import UnstoredSteps
from onefold.effects.steps import Steps
from onefold.model.claim import Takeover
from onefold.operations import claims, maintenance
from onefold.operations.statement import Operation, Sql, Statement
from tests.effects.deliveries import Effect, execute, in_colour
from tests.fixtures.colours import Clock, Colour, Coloured, Store
from tests.fixtures.request_steps import RequestSteps

LEASE = timedelta(seconds=60)
AT_ONCE = Fixed(timedelta(0))


class Attempt(Coloured):
    """The steps of one attempt, awaited in both colours."""

    target: RequestSteps

    def __init__(self, onefold: Onefold, claim: Claim, colour: Colour) -> None:
        super().__init__(RequestSteps(onefold.context, claim), colour)
        self.onefold = onefold
        self.claim = claim

    def using(self, **options: Any) -> Coloured:
        return Coloured(self.target.using(**options), self.colour)


class Requests:
    """Attempts at one request, one after the other."""

    def __init__(self, onefold: Onefold, clock: Clock, colour: Colour) -> None:
        self.onefold = onefold
        self.clock = clock
        self.colour: Colour = colour

    def attempt(self, *, takeover: Takeover = "resume", key: str = "k") -> Attempt:
        answer = self.onefold.claim(
            "alice",
            key,
            surface="http",
            lease=LEASE,
            takeover=takeover,
            retention=timedelta(hours=1),
        )
        assert isinstance(answer, Won), answer
        return Attempt(self.onefold, answer.claim, self.colour)

    def vanish(self, *, takeover: Takeover = "resume") -> Attempt:
        """Whoever has the key is not heard of any more, and the client tries again."""
        self.clock.advance(LEASE * 2)
        return self.attempt(takeover=takeover)

    def labels(self) -> list[str]:
        """What is stored, under any key."""
        found = self.onefold.context.database.transact(stored, write=False)
        return [key.partition(":")[2] for key in found]


def stored(sql: Sql) -> Operation[list[str]]:
    """The keys of all steps there are."""
    table = "onefold_claim" if sql.dialect == "sqlite" else f'"{sql.schema}".claim'
    text = f"select key from {table} where surface = 'step' order by created_at, key"
    rows = yield Statement("steps", text, {})
    return [row[0] for row in rows]


@pytest.fixture
def requests(store: Store, clock: Clock, colour: Colour) -> Requests:
    return Requests(store.open(clock=clock), clock, colour)


async def test_h144_a_step_that_is_over_is_not_done_again_by_who_resumes(
    requests: Requests,
) -> None:
    first, effect = requests.attempt(), Effect()

    given = await first.step("charge", effect, 7)
    second = requests.vanish()

    assert second.claim.resumed
    assert second.claim.id == first.claim.id
    assert await second.step("charge", effect, 7) == given == {"done": 7}
    assert await second.step("mail", effect, 8) == {"done": 8}
    assert effect.calls == [7, 8]


async def test_steps_that_another_task_reads_late_do_not_hide_one_that_has_begun(
    requests: Requests,
) -> None:
    """Two tasks begin at once: both read, and the first has begun its step before the second."""
    await requests.attempt().step("first", Effect())
    second = requests.vanish()
    runtime = requests.onefold.context.runtime
    late = second.target._log.backend.read()
    found = runtime.perform(next(late))

    def charge() -> int:
        with pytest.raises(StopIteration):
            late.send(found)
        return 7

    assert await second.using(unsafe=True, key="o-7").step("charge", charge) == 7
    assert sorted(requests.labels()) == ["charge[o-7]", "first#1"]


async def test_steps_of_a_request_without_a_key_need_no_database(requests: Requests) -> None:
    onefold, effect = requests.onefold, Effect(fails=1)
    log = StepLog(UnstoredSteps("attempt"), lambda: None)
    steps = Coloured(
        Steps(onefold.context, log, lambda: None, {"attempts": 2, "backoff": AT_ONCE}),
        requests.colour,
    )
    onefold.close()

    assert await steps.step("charge", effect, 7) == {"done": 7}
    assert effect.count == 2


@pytest.mark.parametrize("recorded", [True, False])
async def test_h146_a_zombie_records_nothing_whether_its_successor_has_or_not(
    requests: Requests, *, recorded: bool
) -> None:
    zombie = requests.attempt()

    def charge() -> str:
        second = requests.vanish().target
        if recorded:
            second.step("charge", lambda: "the second one's")
        return "the first one's"

    with pytest.raises(LeaseLost):
        await zombie.step("charge", charge)

    assert zombie.target.lost
    given = await requests.vanish().step("charge", lambda: "third")
    assert given == ("the second one's" if recorded else "third")


async def test_h169_a_key_for_a_third_party_is_the_same_over_every_attempt(
    requests: Requests,
) -> None:
    first = requests.attempt(takeover="rerun")
    keys = {first.target.key("charge")}
    await first.step("charge", lambda: keys.add(first.target.key()))
    again = requests.vanish(takeover="rerun")
    keys.add(again.target.key("charge"))

    assert len(keys) == 1
    assert again.target.key("charge", "o-7") not in keys
    assert again.target.key("mail") not in keys
    assert requests.attempt(key="other").target.key("charge") not in keys
    with pytest.raises(UsageError, match="without a name"):
        again.target.key()


async def test_what_a_joined_request_does_has_no_steps(requests: Requests) -> None:
    onefold = requests.onefold
    with transaction(onefold) as connection:
        answer = onefold.within(connection).claim("alice", "joined", surface="http")
        assert isinstance(answer, Won)

        with pytest.raises(UsageError, match="lease"):
            RequestSteps(onefold.context, answer.claim)


@contextmanager
def transaction(onefold: Onefold) -> Generator[Any]:
    """A transaction of Onefold's own, whatever the database."""
    conductor = onefold.context
    with begin(None, conductor.database) as begun:
        yield begun.connection


# --- transact -------------------------------------------------------------------------------------


@pytest.mark.parametrize("of_a_zombie", [False, True])
async def test_h147_rows_and_record_of_a_transact_are_one_commit_or_of_a_zombie_rolled_back(
    requests: Requests, store: Store, *, of_a_zombie: bool
) -> None:
    table = f'"{store.schema}".note' if store.dialect == "postgres" else "note"
    with transaction(requests.onefold) as connection:
        connection.execute(f"create table {table} (text varchar(9) primary key)")
    first = requests.attempt()

    async def insert(connection: Any) -> str:
        await execute(connection, f"insert into {table} values ('a')")
        return "noted"

    note = in_colour(insert, requests.colour)
    if of_a_zombie:
        second = requests.vanish()
        with pytest.raises(LeaseLost):
            await first.transact("note", note)
    else:
        assert await first.transact("note", note) == "noted"
        second = requests.vanish()

    # The key of the row would tell of the first one's.
    assert await second.transact("note", note) == "noted"
    assert requests.labels() == ["note#1"]


# --- what becomes of them -------------------------------------------------------------------------


async def test_h184_the_sweep_takes_the_steps_of_a_claim_along(requests: Requests) -> None:
    """Those of earlier attempts with its key, too; and nobody else's."""
    onefold = requests.onefold
    await requests.attempt(takeover="rerun").step("first", lambda: 1)
    second = requests.vanish(takeover="rerun")
    await second.step("second", lambda: 2)
    await requests.attempt(key="other").step("other", lambda: 3)
    onefold.keys.settle(second.claim)
    sweep = onefold.context.database.transact

    sweep(maintenance.sweep, write=True)
    assert len(requests.labels()) == 3
    requests.clock.advance(timedelta(hours=2))
    sweep(maintenance.sweep, write=True)

    assert requests.labels() == ["other#1"]


async def test_h193_an_erase_takes_the_steps_of_a_claim_along(requests: Requests) -> None:
    onefold = requests.onefold
    await requests.attempt().step("charge", lambda: 1)
    await requests.attempt(key="other").step("other", lambda: 2)

    erased = onefold.keys.erase(key="k")

    assert erased.claims == 2
    assert requests.labels() == ["other#1"]


async def test_a_resume_whose_answer_was_lost_still_knows_that_it_resumes(
    requests: Requests,
) -> None:
    """The claim was taken over and committed; the connection was cut before anybody heard of it."""
    first = requests.attempt()
    await first.step("charge", lambda: "the first one's")
    requests.clock.advance(LEASE * 2)
    onefold = requests.onefold
    wanted = DatabaseClaims(onefold.context).want(
        "http", "alice", "k", {"lease": LEASE, "takeover": "resume"}
    )

    transact = onefold.context.database.transact
    transact(lambda sql: claims.claim(sql, wanted), write=True)
    answer = transact(lambda sql: claims.claim(sql, wanted), write=True)

    assert isinstance(answer, Won)
    second = Attempt(onefold, answer.claim, requests.colour)
    assert await second.step("charge", lambda: "again") == "the first one's"


# --- an operator's word ---------------------------------------------------------------------------


@pytest.mark.parametrize("was_done", [True, False])
async def test_an_unsafe_step_that_vanished_is_unknown_until_an_operator_speaks(
    requests: Requests, onefold: Coloured, *, was_done: bool
) -> None:
    first, effect = requests.attempt(), Effect()
    later: list[Attempt] = []
    with pytest.raises(LeaseLost):
        await first.using(unsafe=True).step("charge", lambda: later.append(requests.vanish()))
    with pytest.raises(OutcomeUnknown):
        await later[0].using(unsafe=True).step("charge", effect)
    with pytest.raises(LeaseLost):
        await first.step("mail", effect)
    assert effect.count == 0

    step = {"surface": "http", "step": "charge"}
    if was_done:
        assert await onefold.keys.force_settle("alice", "k", {"id": 7}, **step)
        assert not await onefold.keys.force_settle("alice", "k", {"id": 8}, **step)
    else:
        assert await onefold.keys.force_release("alice", "k", **step)

    given = await requests.vanish().using(unsafe=True).step("charge", effect)
    assert (given, effect.count) == (({"id": 7}, 0) if was_done else ({"done": None}, 1))


async def test_an_operator_says_nothing_about_what_is_not_there(
    requests: Requests, onefold: Coloured
) -> None:
    await requests.attempt(takeover="rerun").using(unsafe=True).step("charge", lambda: 1)
    requests.vanish(takeover="rerun")  # the step is of an attempt that counts no more

    for key, step in (("k", "charge"), ("k", "mail"), ("nobody's", "charge")):
        assert not await onefold.keys.force_release("alice", key, surface="http", step=step)
    with pytest.raises(InvalidInput, match="step"):
        await onefold.keys.force_release("alice", "k", surface="http", step="")
