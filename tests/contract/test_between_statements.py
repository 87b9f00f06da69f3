"""What happens between two statements of an operation, on PostgreSQL.

A rival commits before a statement that is named, which races leave to chance. And every statement
locks rows of one shard, in one order, so that two calls never wait for each other.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from onefold import (
    AlreadyEnqueued,
    DatabaseBusy,
    Delivery,
    Job,
    JobNotFound,
    LeaseLost,
    NewJob,
    Onefold,
    QueueNotEmpty,
    QueueSettings,
    Within,
)
from onefold.app.queues import DELETE_ROUNDS
from onefold.claims import Busy, Claim, NotDone, Won
from onefold.model.delivery import take_order
from onefold.operations import claims
from onefold.operations.deliveries import take_in_turn
from onefold.operations.queues import empty
from onefold.operations.statement import Sql, Statement
from onefold.testing import Clock
from tests.fixtures.place import Place, postgres_place
from tests.fixtures.shards import SHARDS, found

__all__ = ["postgres_place"]

DAY = timedelta(days=1)
LEASE = timedelta(minutes=5)
ENDPOINT = "https://example.com/hook"

Act = Callable[[], object]


class Watched(Sql):
    """Tells of every statement before it is sent."""

    see: Callable[[Statement], None]

    def __call__(self, *args: Any, **options: Any) -> Statement:
        statement = super().__call__(*args, **options)
        self.see(statement)
        return statement


def watch(onefold: Onefold, see: Callable[[Statement], None]) -> None:
    """Tell of the statements of all its transactions."""
    database = onefold.context.database
    onefold.queues.find()
    for name, sql in list(vars(database).items()):
        if isinstance(sql, Sql):
            watched = Watched.__new__(Watched)
            vars(watched).update(vars(sql), see=see)
            setattr(database, name, watched)


class Rival:
    """Another process, which acts before the next statements of a name."""

    def __init__(self, place: Place, clock: Clock) -> None:
        self._place = place
        self._clock = clock
        self._acts: dict[str, list[Act]] = defaultdict(list)
        self.asked: list[Statement] = []
        self.onefold = place.open(clock=clock)
        self.victim = place.open(clock=clock)
        watch(self.victim, self._act)

    def before(self, statement: str, *acts: Act) -> None:
        self._acts[statement] += acts

    def _act(self, statement: Statement) -> None:
        self.asked.append(statement)
        if self._acts[statement.name]:
            self._acts[statement.name].pop(0)()

    def come(self, **options: Any) -> Any:
        return self.onefold.enqueue("email", unique_key="a", **options)

    def go(self) -> None:
        for job in self.onefold.find(unique_key="a"):
            self.onefold.delete(job.id)

    def publish(self) -> Any:
        return self.onefold.enqueue("email", idempotency_key="a")

    def forget(self) -> None:
        self.onefold.keys.erase(key="a")

    def bury(self, **options: Any) -> str:
        job_id: str = self.onefold.enqueue("email", **options).id
        (job,) = self.onefold.deliveries.take(worker="w", lease=LEASE)
        self.onefold.deliveries.bury([job], reason="broken")
        return job_id

    def win(self) -> Claim:
        answer = self.onefold.claim("import", "k", lease=LEASE)
        assert isinstance(answer, Won)
        return answer.claim

    def win_and_release(self) -> None:
        self.onefold.keys.release(self.win())

    def close(self) -> None:
        left = {name for name, acts in self._acts.items() if acts}
        self.onefold.close()
        self.victim.close()
        assert not left, f"these statements were not sent so often: {left}"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rival(postgres_place: Place, clock: Clock) -> Iterator[Rival]:
    found = Rival(postgres_place, clock)
    yield found
    found.close()


@pytest.fixture
def onefold(rival: Rival) -> Onefold:
    return rival.victim


@pytest.fixture
def caller(postgres_place: Place) -> Iterator[Any]:
    """A caller's connection, in a transaction."""
    with postgres_place.connection() as connection:
        connection.execute("begin")
        yield connection


@pytest.fixture
def within(onefold: Onefold, caller: Any) -> Within:
    return onefold.within(caller)


def nothing() -> None:
    pass


TWO = [NewJob("email", unique_key="a"), NewJob("email", unique_key="b")]
PUBLISHED = [NewJob("email", idempotency_key="a"), NewJob("email", idempotency_key="0")]


# --- unique keys ----------------------------------------------------------------------------------


def test_a_holder_that_ended_before_the_look_leaves_its_key(rival: Rival, within: Within) -> None:
    rival.come()
    rival.before("find_holders", rival.go)
    assert within.enqueue_many(TWO).inserted == 2


def test_our_own_transaction_begins_anew_rather_than_ask_for_keys_out_of_order(
    rival: Rival, onefold: Onefold
) -> None:
    rival.come()
    rival.before("lock_holders", rival.go)
    rival.before("insert_jobs", rival.come)
    rival.before("find_holders", rival.go)
    assert onefold.enqueue_many(TWO, on_duplicate="replace").inserted == 2


def test_a_key_that_keeps_changing_hands_is_given_up_and_nothing_stays(
    rival: Rival, within: Within, caller: Any
) -> None:
    rival.come()
    rival.before("insert_job", *[rival.come] * 7)
    rival.before("find_holders", *[rival.go] * 8)
    with pytest.raises(DatabaseBusy, match="the key 'a' changed hands 8 times while we looked"):
        within.enqueue_many(TWO)
    caller.execute("commit")
    assert len(rival.onefold.find()) == 0


def test_a_holder_that_ended_before_its_lock_is_replaced_by_the_newcomer(
    rival: Rival, within: Within
) -> None:
    rival.come()
    rival.before("lock_holders", rival.go)
    assert within.enqueue("email", unique_key="a", on_duplicate="replace").inserted


def test_another_holder_that_came_meanwhile_is_replaced(rival: Rival, within: Within) -> None:
    rival.come()
    rival.before("lock_holders", rival.go)
    rival.before("insert_job", rival.come)
    answer = within.enqueue("email", {"a": 2}, unique_key="a", on_duplicate="replace")
    assert (answer.duplicate, answer.replaced, answer.mismatch) == (True, True, False)
    (holder,) = rival.onefold.find(unique_key="a")
    assert holder.id == answer.id


def test_a_holder_that_gave_its_key_up_before_its_lock_is_none(
    rival: Rival, within: Within
) -> None:
    holder = rival.come(unique_while="queued")
    take = partial(rival.onefold.deliveries.take, worker="w", lease=LEASE)
    rival.before("lock_holders", take)
    answer = within.enqueue("email", unique_key="a", on_duplicate="replace")
    assert answer.inserted
    assert answer.id != holder.id


@pytest.mark.parametrize("is_last_free", [False, True])
def test_holders_that_keep_changing_are_given_up_after_eight_rounds(
    rival: Rival, within: Within, *, is_last_free: bool
) -> None:
    rival.come()
    rival.before("lock_holders", *[rival.go] * 8)
    rival.before("insert_job", *[rival.come] * (7 if is_last_free else 8))
    if is_last_free:
        assert within.enqueue("email", unique_key="a", on_duplicate="replace").inserted
        return
    with pytest.raises(DatabaseBusy, match="the key 'a' changed hands 8 times"):
        within.enqueue("email", unique_key="a", on_duplicate="replace")


# --- publish keys ---------------------------------------------------------------------------------


def test_a_publish_key_that_was_erased_before_the_look_is_free(
    rival: Rival, within: Within
) -> None:
    rival.publish()
    rival.before("find_claims", rival.forget)
    assert within.enqueue("email", idempotency_key="a").inserted


def test_a_publish_key_that_keeps_changing_hands_is_given_up_and_nothing_stays(
    rival: Rival, within: Within, caller: Any
) -> None:
    rival.publish()
    rival.before("insert_claims", nothing, *[rival.publish] * 7)
    rival.before("find_claims", *[rival.forget] * 8)
    with pytest.raises(DatabaseBusy, match="the publish key 'a' changed hands 8 times"):
        within.enqueue_many(PUBLISHED)
    caller.execute("commit")
    assert rival.onefold.enqueue_many(PUBLISHED).inserted == 2


def test_a_publish_key_that_a_rival_takes_over_is_the_rivals(
    rival: Rival, within: Within, clock: Clock
) -> None:
    rival.onefold.delete(rival.publish().id)
    clock.advance(DAY)
    theirs: list[str] = []
    rival.before("take_over_claims", lambda: theirs.append(rival.publish().id))
    answer = within.enqueue("email", idempotency_key="a")
    assert (answer.id, answer.duplicate) == (theirs[0], True)


# --- claims ---------------------------------------------------------------------------------------


def test_a_claim_that_keeps_changing_hands_is_given_up(rival: Rival, onefold: Onefold) -> None:
    rival.win_and_release()
    rival.before("take_over_claims", *[rival.win_and_release] * 8)
    with pytest.raises(DatabaseBusy, match="the key 'k' changed hands 8 times while we looked"):
        onefold.claim("import", "k", lease=LEASE)


def test_a_free_claim_is_busy_while_an_open_transaction_takes_it(
    rival: Rival, onefold: Onefold, within: Within
) -> None:
    rival.win_and_release()
    assert isinstance(within.claim("import", "k"), Won)
    assert isinstance(onefold.claim("import", "k", lease=LEASE), Busy)


@pytest.mark.parametrize("statement", ["find_claim", "take_over_claims"])
def test_what_verify_found_undone_is_not_run_if_somebody_else_has_acted(
    rival: Rival, onefold: Onefold, clock: Clock, statement: str
) -> None:
    rival.win()
    clock.advance(LEASE)
    rival.before(statement, partial(rival.onefold.keys.force_settle, "import", "k", "theirs"))
    with onefold.once("import", "k", verify=lambda _: NotDone()) as claim:
        assert claim.result == "theirs"


def test_who_has_lost_a_claim_cannot_leave_it_unknown(
    rival: Rival, onefold: Onefold, clock: Clock
) -> None:
    stale = rival.win()
    rival.onefold.keys.force_release("import", "k")
    with pytest.raises(LeaseLost):
        onefold.context.database.transact(lambda sql: claims.abandon(sql, stale))


# --- deliveries -----------------------------------------------------------------------------------


def test_a_finish_takes_the_successor_of_its_job(onefold: Onefold) -> None:
    onefold.enqueue("email", 1, unique_key="a")
    (taken,) = onefold.deliveries.take(worker="w", lease=LEASE)
    onefold.enqueue("email", 2, unique_key="a", on_duplicate="rerun")
    delivery = Delivery(taken.id, taken.fence)
    _, jobs = onefold.deliveries.finish_and_take([delivery], worker="w", lease=LEASE)
    assert [job.payload for job in jobs] == [2]


# --- replays --------------------------------------------------------------------------------------


def test_a_dead_letter_that_goes_before_its_lock_is_not_found(
    rival: Rival, onefold: Onefold
) -> None:
    job_id = rival.bury()
    rival.before("lock_deliveries", partial(rival.onefold.delete, job_id))
    with pytest.raises(JobNotFound):
        onefold.replay(job_id)


def test_a_record_that_is_pruned_before_its_lock_is_not_found(
    rival: Rival, onefold: Onefold, clock: Clock
) -> None:
    job_id = rival.bury(unique_key="a", unique_for=100 * DAY)
    clock.advance(30 * DAY)
    rival.before("lock_deliveries", rival.onefold.deliveries.prune)
    with pytest.raises(JobNotFound):
        onefold.replay(job_id)


def test_in_bulk_the_rivals_of_a_letter_that_went_are_left_out(
    rival: Rival, onefold: Onefold
) -> None:
    first, _ = (rival.bury(unique_key="a") for _ in range(2))
    rival.before("lock_deliveries", partial(rival.onefold.delete, first))
    assert onefold.dead.replay().inserted == 0


def test_a_letter_that_somebody_replayed_meanwhile_is_its_own_duplicate(
    rival: Rival, onefold: Onefold
) -> None:
    job_id = rival.bury()
    rival.before("lock_deliveries", partial(rival.onefold.replay, job_id))
    answer = onefold.replay(job_id)
    assert (answer.id, answer.duplicate, answer.state) == (job_id, True, "ready")


# --- queues --------------------------------------------------------------------------------------


def test_a_queue_that_somebody_has_just_made_keeps_their_secret(
    rival: Rival, onefold: Onefold
) -> None:
    made: list[Any] = []
    save = partial(rival.onefold.queues.save, "mail", QueueSettings(endpoint=ENDPOINT))
    rival.before("insert_served_queue", lambda: made.append(save()))
    ours = onefold.queues.save("mail", QueueSettings(endpoint=ENDPOINT))
    assert not ours.is_new
    assert ours.signing_secret == made[0].signing_secret is not None


def test_a_queue_that_was_made_and_removed_meanwhile_is_made_after_all(
    rival: Rival, onefold: Onefold
) -> None:
    rival.before("insert_served_queue", partial(rival.onefold.queues.save, "mail"))
    rival.before("lock_served_queue", nothing, partial(rival.onefold.queues.delete, "mail"))
    assert onefold.queues.save("mail").is_new


def test_a_queue_that_is_never_empty_is_left_alone_in_the_end(
    rival: Rival, onefold: Onefold
) -> None:
    onefold.queues.save("mail")
    come: Act = partial(rival.come, queue="mail")
    acts: list[Act] = [come, nothing] * DELETE_ROUNDS
    rival.before("find_live_jobs", *acts, come)
    with pytest.raises(QueueNotEmpty):
        onefold.queues.delete("mail", force=True)
    assert rival.onefold.queues.get("mail") is not None


# --- how few they are -----------------------------------------------------------------------------


ONE_STATEMENT: dict[str, Callable[[Onefold], object]] = {
    "insert_job": lambda onefold: onefold.enqueue("email"),
    "enqueue_one": lambda onefold: onefold.enqueue("email", unique_key="k"),
    "publish_job": lambda onefold: onefold.enqueue("email", idempotency_key="p"),
    "publish_unique_job": lambda onefold: onefold.enqueue(
        "email", unique_key="k", idempotency_key="p"
    ),
    "store_keyed_jobs": lambda onefold: onefold.enqueue_many(TWO),
    "claim_one": lambda onefold: onefold.claim("import", "k"),
    "exchange_jobs": lambda onefold: onefold.deliveries.take(worker="w", lease=LEASE),
}


@pytest.mark.parametrize("name", ONE_STATEMENT)
def test_most_calls_are_one_statement(rival: Rival, onefold: Onefold, name: str) -> None:
    """The first call, and one that finds what it stored."""
    for _ in range(2):
        rival.asked.clear()
        ONE_STATEMENT[name](onefold)
        assert [statement.name for statement in rival.asked] == [name]
    # A batch with keys needs a transaction: more may follow.
    assert [statement.alone for statement in rival.asked] == [name != "store_keyed_jobs"]


# --- the order of locks ---------------------------------------------------------------------------


@pytest.fixture
def spread(postgres_url: str, postgres_schema: str) -> Iterator[Onefold]:
    """An Onefold of four shards."""
    place = Place(postgres_url, postgres_schema)
    found(place, SHARDS)
    with place.open() as onefold:
        yield onefold


KEYED = [NewJob("email", unique_key=f"k{number * 7 % 24:02}") for number in range(24)]
PUBLISHES = [NewJob("email", idempotency_key=f"p{number * 7 % 24:02}") for number in range(24)]


def enqueue(onefold: Onefold) -> None:
    onefold.enqueue_many(KEYED)


def take(onefold: Onefold) -> list[Job]:
    onefold.enqueue_many(KEYED)
    jobs = onefold.deliveries.take(limit=24, worker="w", lease=LEASE)
    return sorted(jobs, key=lambda job: job.unique_key or "")


def taken_back(onefold: Onefold) -> None:
    onefold.enqueue("email", unique_key="taken")
    batch = [*PUBLISHES, *KEYED, NewJob("email", unique_key="taken")]
    with pytest.raises(AlreadyEnqueued):
        onefold.enqueue_many(batch, on_duplicate="raise")


def buried(onefold: Onefold) -> None:
    onefold.deliveries.bury(take(onefold), reason="broken")


def won(onefold: Onefold) -> list[Claim]:
    answers = [onefold.claim("import", f"k{number * 7 % 24:02}") for number in range(24)]
    return [answer.claim for answer in answers if isinstance(answer, Won)]


def settle(onefold: Onefold) -> None:
    words = [claims.Settlement(claim, None) for claim in won(onefold)]
    onefold.context.database.transact(lambda sql: claims.settle(sql, [*words, words[0]]))


def release(onefold: Onefold) -> None:
    held = won(onefold)
    onefold.context.database.transact(lambda sql: claims.release(sql, held))


LOCKING: dict[str, tuple[Callable[[Onefold], Any], Callable[[Onefold], object], list[str]]] = {
    "enqueue": (lambda _: None, enqueue, ["insert_jobs"]),
    "replace": (
        enqueue,
        lambda onefold: onefold.enqueue_many(KEYED, on_duplicate="replace"),
        ["insert_jobs", "find_holders", "lock_holders", "replace_jobs"],
    ),
    "publish": (
        lambda onefold: onefold.enqueue_many(PUBLISHES),
        lambda onefold: onefold.enqueue_many(PUBLISHES),
        ["insert_claims", "find_claims", "job_states"],
    ),
    "take back": (
        lambda _: None, taken_back, ["insert_claims", "insert_jobs", "delete_claims"]
    ),
    "finish": (
        lambda _: None,
        lambda onefold: onefold.deliveries.finish(take(onefold)),
        ["exchange_jobs"],
    ),
    "heartbeat": (
        lambda _: None,
        lambda onefold: onefold.deliveries.heartbeat(take(onefold), lease=LEASE),
        ["heartbeat_jobs"],
    ),
    "retry": (
        lambda _: None,
        lambda onefold: onefold.deliveries.retry(take(onefold)),
        ["lock_deliveries", "move_jobs", "insert_attempts"],
    ),
    "replay": (
        buried,
        lambda onefold: onefold.dead.replay(),
        ["find_replayable", "insert_jobs", "delete_jobs", "lock_deliveries", "move_jobs"],
    ),
    "drop": (
        buried,
        lambda onefold: onefold.dead.delete(),
        ["lock_deliveries", "delete_jobs", "delete_duplicates", "delete_attempts"],
    ),
    "settle": (lambda _: None, settle, ["settle_claims"]),
    "release": (lambda _: None, release, ["release_claims"]),
}  # fmt: skip


@pytest.mark.parametrize("name", LOCKING)
def test_statements_go_shard_by_shard_and_lock_in_one_order(spread: Onefold, name: str) -> None:
    before, call, expected = LOCKING[name]
    before(spread)
    asked: list[Statement] = []
    watch(spread, asked.append)
    call(spread)
    for statement in expected:
        shards: list[int] = []
        for one in asked:
            if one.name == statement and one.rows:
                rows = [_place(one, row) for row in one.rows]
                assert rows == sorted(rows), statement
                (shard,) = {row[0] for row in rows}
                shards.append(shard)
        assert shards == sorted({*shards}), statement
        assert len(shards) > 1, statement


def _place(statement: Statement, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shard and the key of a row, in the order in which its statement must lock them."""
    values = dict(zip(statement.columns, row, strict=True))
    key = ("tenant", "unique_kind", "unique_key") if "unique_key" in values else ("key", "id")
    shard = values.get("shard", statement.parameters.get("shard"))
    return (shard, *[values.get(name) or "" for name in key])


def test_a_take_over_all_shards_ends_when_it_has_enough(spread: Onefold) -> None:
    enqueue(spread)
    order = take_order({"default": 5}, limit=9, worker="w", lease=LEASE)
    taken = spread.context.database.transact(lambda sql: take_in_turn(sql, order, turn=2))
    assert len(taken) == 5


def test_a_queue_of_many_shards_is_emptied_a_batch_at_a_time(spread: Onefold) -> None:
    enqueue(spread)
    transact = spread.context.database.transact
    assert transact(lambda sql: empty(sql, "default", limit=2)) == 2
    assert len(spread.find()) == len(KEYED) - 2
