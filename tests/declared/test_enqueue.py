"""What a declared job stores: arguments, options, keys, groups, many at once."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onefold import (
    AlreadyEnqueued,
    ConflictingOptions,
    DeclaredJob,
    Fixed,
    InvalidInput,
    JobCall,
    Onefold,
    Retention,
    Unique,
    UsageError,
)
from onefold.effects.run import Run
from tests.declared.stage import Stage
from tests.fixtures.colours import Store
from tests.fixtures.place import Place

MINUTE = timedelta(minutes=1)


def declare(onefold: Onefold) -> DeclaredJob[..., None]:
    @onefold.job(
        queue="email",
        priority=3,
        max_attempts=5,
        unique=Unique("user"),
        unique_while="queued",
        tags=("mail",),
    )
    def send(user: int, template: str = "welcome") -> None: ...

    return send


async def test_a_worker_calls_the_function_with_what_was_enqueued(stage: Stage) -> None:
    @stage.onefold.job
    def at(run: Run, moment: datetime, /, names: list[str], *, loud: bool = False) -> Any:
        return run, moment, names, loud

    @stage.onefold.job
    async def later(moment: datetime) -> datetime:
        return moment

    moment = datetime(2030, 1, 1, tzinfo=UTC)
    await stage.enqueue(at, moment, ["a"], loud=True)
    await stage.enqueue(later, moment=moment)

    assert await stage.work() == [("the run", moment, ["a"], True), moment]


async def test_a_duplicate_is_known_by_its_key_with_defaults_applied(stage: Stage) -> None:
    send = declare(stage.onefold)

    first = await stage.enqueue(send, 42)
    again = await stage.enqueue(send, user=42, template="welcome")
    other = await stage.enqueue(send, 43)

    assert (again.id, again.duplicate, again.mismatch) == (first.id, True, False)
    assert other.inserted
    assert (await stage.get(first)).unique_key == send.unique_key(42) == send.unique_key(user=42)
    assert send.unique_key(42) == Unique("user").key("send", {"user": 42})


async def test_using_says_otherwise_for_one_call(stage: Stage) -> None:
    send = declare(stage.onefold)
    with pytest.raises(InvalidInput, match="uniqe_key is not an option here"):
        send.using(uniqe_key="k")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    bound = send.using(priority=-1, tags=("now",)).using(queue="fast", delay=MINUTE)

    job = await stage.get(await stage.enqueue(bound, 42))

    assert (job.priority, job.queue, job.tags, job.max_attempts) == (-1, "fast", ("now",), 5)
    assert job.state == "scheduled"
    declared = await stage.get(await stage.enqueue(send, 43))
    assert (declared.kind, declared.payload) == ("send", {"user": 43, "template": "welcome"})
    assert (declared.queue, declared.priority, declared.max_attempts) == ("email", 3, 5)
    assert declared.tags == ("mail",)


async def test_using_no_unique_key_switches_the_declared_one_off(stage: Stage) -> None:
    send = declare(stage.onefold)
    free = send.using(unique_key=None)

    assert (await stage.enqueue(send, 42)).inserted
    assert (await stage.enqueue(free, 42)).inserted
    assert (await stage.enqueue(send.using(unique_key="mine"), 42)).inserted
    assert (await stage.enqueue(send.using(unique_key="mine"), 43)).duplicate
    with pytest.raises(UsageError, match="has no unique key"):
        free.unique_key(42)
    assert send.using(unique_key="mine").unique_key(42) == "mine"


async def test_the_group_follows_from_an_argument(stage: Stage) -> None:
    @stage.onefold.job(group="customer.id")
    def bill(customer: dict[str, Any]) -> None: ...

    async def group_of(customer: dict[str, Any]) -> str | None:
        return (await stage.get(await stage.enqueue(bill, customer))).group_key

    assert await group_of({"id": "acme"}) == "acme"
    assert await group_of({"id": 7}) == "7"
    assert await group_of({"id": None}) is None
    assert await group_of({"id": ""}) is None
    assert await group_of({}) is None
    given = await stage.enqueue(bill.using(group_key="mine"), {"id": 7})
    assert (await stage.get(given)).group_key == "mine"


async def test_many_are_stored_together_and_answered_in_order(stage: Stage) -> None:
    send = declare(stage.onefold)
    first = await stage.enqueue(send, 1)

    many = await stage.enqueue_many(send, [send.call(1), send.call(2, "bye"), send.call(user=2)])

    assert (many.inserted, many.skipped) == (1, 2)
    assert [one.id for one in many] == [first.id, many[1].id, many[1].id]
    assert (await stage.get(many[1])).payload == {"user": 2, "template": "bye"}


async def test_what_a_duplicate_does_is_said_once_for_all_items(stage: Stage) -> None:
    send = declare(stage.onefold)
    await stage.enqueue(send, 2)
    raising = send.using(on_duplicate="raise")

    with pytest.raises(AlreadyEnqueued):
        await stage.enqueue_many(raising, [send.call(1), send.call(2)])
    with pytest.raises(ConflictingOptions, match="item 1: on_duplicate is set once") as caught:
        await stage.enqueue_many(send, [send.call(1), raising.call(3)])

    assert caught.value.item == 1
    assert len(await stage.onefold.afind()) == 1


async def test_calls_of_several_kinds_go_together_as_values(stage: Stage) -> None:
    send = declare(stage.onefold)

    @stage.onefold.job
    def other(number: int) -> None: ...

    wrong: list[Any] = [other.call(1), {"user": 1}]
    for item in wrong:
        with pytest.raises(InvalidInput, match=r"item 1: calls must hold send.call\(…\)"):
            await stage.enqueue_many(send, [send.call(1), item])
    call = send.using(priority=1).call(42)
    many = await stage.onefold.aenqueue_many([call.new_job(), other.call(1).new_job()])

    assert isinstance(call, JobCall)
    assert repr(call) == "JobCall('send')"
    jobs = [await stage.get(one) for one in many]
    assert [(job.kind, job.priority, job.queue) for job in jobs] == [
        ("send", 1, "email"), ("other", 0, "default"),
    ]  # fmt: skip


async def test_a_tenants_job_is_the_tenants(stage: Stage) -> None:
    send = declare(stage.onefold)
    acme = send.tenant("acme")

    first = await stage.enqueue(acme, 42)

    assert (await stage.enqueue(send, 42)).inserted
    assert (await stage.enqueue(acme.using(priority=1), 42)).id == first.id
    assert await stage.onefold.aget(first.id) is None
    found = await stage.onefold.tenant("acme").aget(first.id)
    assert found is not None
    with pytest.raises(UsageError, match="for a tenant already"):
        acme.tenant("other")


@pytest.mark.parametrize("commits", [True, False])
def test_within_joins_the_callers_transaction(store: Store, *, commits: bool) -> None:
    onefold = store.open()
    send = declare(onefold)
    place = Place(store.url, store.schema)
    with place.connection() as connection:
        connection.execute(place.begin)
        bound = send.within(connection)
        answer = bound.enqueue(42)
        assert bound.using(priority=1).enqueue(42).id == answer.id
        with pytest.raises(UsageError, match="within a connection already"):
            bound.within(connection)
        with pytest.raises(UsageError, match=r"job.tenant\(…\).within\(…\)"):
            bound.tenant("acme")
        connection.execute("commit" if commits else "rollback")

    assert (onefold.get(answer.id) is not None) == commits


QUEUES = Retention(completed=MINUTE, dead=MINUTE)


async def test_a_job_beats_its_kind_and_a_kind_its_queue(stage: Stage) -> None:
    onefold = stage.onefold
    onefold.queues.declare("q", backoff=Fixed(3 * MINUTE), retention=QUEUES, timeout=3 * MINUTE)

    @onefold.job(
        queue="q",
        backoff=Fixed(2 * MINUTE),
        retention=Retention(completed=2 * MINUTE),
        timeout=2 * MINUTE,
    )
    def with_its_own() -> None: ...

    @onefold.job(queue="q")
    def without() -> None: ...

    async def stored(answer: Any) -> tuple[Any, ...]:
        job = await stage.get(answer)
        backoff, retention = job.backoff, job.retention or Retention()
        delay = backoff.delay if isinstance(backoff, Fixed) else None
        return tuple(
            None if value is None else value // MINUTE
            for value in (delay, retention.completed, retention.dead, job.timeout)
        )

    own = with_its_own.using(backoff=Fixed(MINUTE), retention=Retention(dead=0 * MINUTE))
    assert await stored(await stage.enqueue(without)) == (3, 1, 1, 3)
    # The worker knows the timeout of the kind.
    assert await stored(await stage.enqueue(with_its_own)) == (2, 2, 1, None)
    assert await stored(await stage.enqueue(own.using(timeout=MINUTE))) == (1, 2, 0, 1)
    assert await stored(onefold.enqueue("with_its_own", queue="q")) == (2, 2, 1, None)
    assert await stored(onefold.enqueue("any", queue="q")) == (3, 1, 1, 3)
    assert await stored(onefold.enqueue("any")) == (
        None, None, None, None,
    )  # fmt: skip


def test_defaults_hold_for_tenants_and_inside_of_a_batch(store: Store) -> None:
    onefold = store.open()
    onefold.queues.declare("q", timeout=MINUTE)
    acme = onefold.tenant("acme")

    (answer,) = acme.enqueue_many([declare(onefold).using(queue="q").call(1).new_job()])

    found = acme.get(answer.id)
    assert found is not None
    assert found.timeout == MINUTE


def test_what_is_said_of_a_queue_is_checked_and_can_be_said_anew() -> None:
    onefold = Onefold("sqlite:///never-opened.db")
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("queue", {"name": "a*"}),
        ("backoff", {"name": "a", "backoff": 5}),
        ("timeout", {"name": "a", "timeout": 5}),
        ("retention", {"name": "a", "retention": 5}),
    ]

    for field, options in wrong:
        with pytest.raises(InvalidInput) as caught:
            onefold.queues.declare(**options)
        assert caught.value.field == field


@pytest.mark.parametrize("wrong", [None, {"kind": "a"}])
def test_defaults_leave_refusals_to_the_rules_of_a_job(store: Store, wrong: Any) -> None:
    onefold = store.open()
    onefold.queues.declare("q", timeout=MINUTE)

    with pytest.raises(InvalidInput, match="item 0: job must be a NewJob"):
        onefold.enqueue_many([wrong])
    with pytest.raises(InvalidInput, match="kind must be a string"):
        onefold.enqueue([])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
