"""Jobs and their keys against the model: any order of calls, on both databases."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

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

from onefold import Delivery, OnefoldError
from onefold.model.lifecycle import Event
from onefold.operations.endings import Ending
from tests.model.job_model import JobModel
from tests.model.job_records import Answer, Asked, Policy, Record, Refused
from tests.model.job_requests import (
    POLICIES,
    QUEUED,
    QUEUES,
    REQUESTS,
    TENANTS,
    new_job,
    span,
    stored,
    told,
)
from tests.model.store import LENGTH, SHRINKING, Store, moment, seconds

T = TypeVar("T")

STATES = ("queued", "running", "completed", "dead", "cancelled")
WORDS = {
    "retry": Event.FAIL,
    "defer": Event.DEFER,
    "bury": Event.BURY,
    "cancel": Event.CANCEL,
    "hand_back": Event.HAND_BACK,
}
NOWHERE = "01890000-0000-7000-8000-000000000000"


def _outcome(call: Callable[[], T]) -> T | tuple[str, int | None]:
    """The answer of either side, or the name of its refusal and the item it names."""
    try:
        return call()
    except Refused as refused:
        return refused.error, refused.item
    except OnefoldError as error:
        return type(error).__name__, getattr(error, "item", None)


def _words(states: Sequence[str]) -> list[str]:
    """The states of jobs for those of the model."""
    return [word for state in states for word in (QUEUED if state == "queued" else (state,))]


class JobMachine(RuleBasedStateMachine):
    """Every call goes to the engine and to the model; both must say and store the same."""

    jobs = Bundle("jobs")
    deliveries = Bundle("deliveries")

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.engine = store.onefold.deliveries
        self.model = JobModel(now=0)
        self.known: set[str] = set()

    def teardown(self) -> None:
        self.store.clear()

    @rule(by=st.sampled_from([1, 5, 10, 20, 60, 3600, 86_400, 8 * 86_400]))
    def let_time_pass(self, by: int) -> None:
        self.store.now += by
        self.model.now += by

    @rule(target=jobs, asked=REQUESTS, policy=POLICIES)
    def enqueue_for_one(self, asked: Asked, policy: Policy) -> MultipleResults[str]:
        return self._enqueue("one", [asked], policy)

    @rule(target=jobs, tenant=TENANTS, asked=REQUESTS, policy=POLICIES)
    def enqueue(self, tenant: str, asked: Asked, policy: Policy) -> MultipleResults[str]:
        return self._enqueue(tenant, [asked], policy)

    @rule(
        target=jobs,
        tenant=TENANTS,
        asked=st.lists(REQUESTS, min_size=2, max_size=5),
        policy=POLICIES,
    )
    def enqueue_many(self, tenant: str, asked: list[Asked], policy: Policy) -> MultipleResults[str]:
        return self._enqueue(tenant, asked, policy)

    def _enqueue(self, tenant: str, asked: Sequence[Asked], policy: Policy) -> MultipleResults[str]:
        new_jobs = [new_job(item, self.model.now) for item in asked]
        answer = _outcome(
            lambda: [
                told(item)
                for item in self.store.onefold.tenant(tenant).enqueue_many(
                    new_jobs,
                    on_duplicate=policy.on_duplicate,  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
                    on_mismatch=policy.on_mismatch,  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
                    max_wait=span(policy.max_wait),
                )
            ]
        )

        def new_id(index: int) -> str:
            return answer[index].id if isinstance(answer, list) else f"refused {index}"

        assert answer == _outcome(lambda: self.model.enqueue(tenant, asked, policy, new_id))
        return self._seen()

    @rule(
        target=deliveries,
        queues=st.sampled_from([("left",), ("right",), ("left", "right"), ("right", "left")]),
        limit=st.integers(1, 4),
        lease=st.sampled_from([5, 60]),
    )
    def take(
        self, queues: tuple[str, ...], limit: int, lease: int
    ) -> MultipleResults[tuple[str, int]]:
        limit = self.model.without_ties(queues, limit)
        taken = self.engine.take(queues, limit=limit, worker="w", lease=timedelta(seconds=lease))

        expected = self.model.take(queues, limit, lease)
        assert [(job.id, job.fence, job.payload) for job in taken] == [
            (record.id, record.fence, {"n": record.asked.payload}) for record in expected
        ]
        return _deliveries(expected)

    @rule(target=deliveries)
    def take_all(self) -> MultipleResults[tuple[str, int]]:
        return self.take(QUEUES, 100, 60)

    @rule(target=jobs, delivery=deliveries, word=st.sampled_from(["finish", "retry", "bury"]))
    def end(self, delivery: tuple[str, int], word: str) -> MultipleResults[str]:
        return self.end_many(word, [delivery], None)

    @rule(
        target=jobs,
        word=st.sampled_from(["finish", "retry", "defer", "bury", "hand_back"]),
        named=st.lists(deliveries, min_size=1, max_size=4, unique=True),
        after=st.sampled_from([None, 0, 10]),
    )
    def end_many(
        self, word: str, named: list[tuple[str, int]], after: int | None
    ) -> MultipleResults[str]:
        words = [Delivery(*delivery) for delivery in named]
        match word:
            case "finish":
                ended = self.engine.finish(words)
            case "retry":
                ended = self.engine.retry(words, after=span(after))
            case "defer":
                ended = self.engine.defer(words, after=timedelta(seconds=after or 0))
            case "bury":
                ended = self.engine.bury(words, reason="told")
            case _:
                ended, after = self.engine.hand_back(words), None

        expected = self.model.end(word, named, after)
        assert [(item.status, stored(item.state)) for item in ended] == expected
        return self._seen()

    @rule(
        target=jobs,
        named=st.lists(
            st.tuples(st.sampled_from(list(WORDS)), deliveries),
            min_size=1,
            max_size=4,
            unique_by=lambda word: word[1],
        ),
        after=st.sampled_from([0, 10]),
    )
    def end_mixed(
        self, named: list[tuple[str, tuple[str, int]]], after: int
    ) -> MultipleResults[str]:
        ended = self.engine.end(
            [
                # Only they wait, and only they say why.
                Ending(
                    Delivery(*delivery),
                    WORDS[word],
                    after * 1_000_000 if word in {"retry", "defer"} else None,
                    "told" if word in {"bury", "cancel"} else None,
                )
                for word, delivery in named
            ]
        )

        expected = self.model.end_mixed(named, after)
        assert [(item.status, stored(item.state)) for item in ended] == expected
        return self._seen()

    @rule(
        target=deliveries,
        named=st.lists(deliveries, max_size=2, unique=True),
        limit=st.integers(1, 2),
    )
    def finish_and_take(
        self, named: list[tuple[str, int]], limit: int
    ) -> MultipleResults[tuple[str, int]]:
        words = [Delivery(*delivery) for delivery in named]
        expected_words = self.model.end("finish", named)
        ended, taken = self.engine.finish_and_take(
            words,
            QUEUES,
            limit=self.model.without_ties(QUEUES, limit),
            worker="w",
            lease=timedelta(seconds=60),
        )

        self._seen()
        expected = self.model.take(QUEUES, len(taken) or limit, 60)
        assert [(item.status, stored(item.state)) for item in ended] == [
            # A stale word about a job that this very call has taken again.
            (status, "running" if job_id in {r.id for r in expected} else state)
            for (job_id, _), (status, state) in zip(named, expected_words, strict=True)
        ]
        assert [job.id for job in taken] == [record.id for record in expected]
        return _deliveries(expected)

    @rule(
        named=st.lists(deliveries, min_size=1, max_size=3, unique=True),
        lease=st.sampled_from([5, 60]),
    )
    def heartbeat(self, named: list[tuple[str, int]], lease: int) -> None:
        beats = self.engine.heartbeat(
            [Delivery(*delivery) for delivery in named], lease=timedelta(seconds=lease)
        )

        assert [not beat.lost for beat in beats] == self.model.heartbeat(named, lease)

    @rule(target=jobs)
    def rescue(self) -> MultipleResults[str]:
        rescued = self.engine.rescue()

        expected = self.model.rescue()
        assert (rescued.requeued, rescued.buried, rescued.expired) == expected
        return self._seen()

    @rule(target=jobs, times=st.integers(1, 6))
    def let_workers_vanish(self, times: int) -> MultipleResults[str]:
        made: list[str] = []
        for _ in range(times):
            self.take(QUEUES, 100, 5)
            self.let_time_pass(10)
            made += self.rescue().values
            self.the_same_is_stored()
        return multiple(*made)

    @rule(target=jobs, tenant=TENANTS, job_id=jobs, reason=st.sampled_from([None, "unwanted"]))
    def cancel(self, tenant: str, job_id: str, reason: str | None) -> MultipleResults[str]:
        onefold = self.store.onefold.tenant(tenant)

        answer = _outcome(lambda: onefold.cancel(job_id, reason=reason))

        assert answer == _outcome(lambda: self.model.cancel(tenant, job_id, reason))
        return self._seen()

    @rule(target=jobs, tenant=TENANTS, job_id=jobs, fresh=st.booleans())
    def replay(self, tenant: str, job_id: str, *, fresh: bool) -> MultipleResults[str]:
        onefold = self.store.onefold.tenant(tenant)

        answer = _outcome(lambda: told(onefold.replay(job_id, fresh=fresh)))

        new_id = answer.id if isinstance(answer, Answer) else "refused"
        expected = _outcome(
            lambda: self.model.replay(tenant, job_id, fresh=fresh, new_id=lambda: new_id)
        )
        assert answer == expected
        return self._seen()

    @rule(
        target=jobs,
        tenant=TENANTS,
        states=st.sampled_from([("dead",), ("completed",), ("cancelled",), STATES]),
    )
    def replay_many(self, tenant: str, states: tuple[str, ...]) -> MultipleResults[str]:
        answers = self.store.onefold.tenant(tenant).dead.replay(state=_words(states), fresh=True)

        wanted = [
            record
            for record in self._records()
            if record.tenant == tenant and record.state in states and not record.stripped
        ]
        assert len(wanted) == len(answers)
        for record, answer in zip(wanted, answers, strict=True):
            expected = self.model.replay(
                tenant, str(record.id), fresh=True, new_id=partial(str, answer.id)
            )
            assert told(answer) == expected
        return self._seen()

    @rule(target=jobs, tenant=TENANTS, job_id=jobs)
    def delete(self, tenant: str, job_id: str) -> MultipleResults[str]:
        deleted = self.store.onefold.tenant(tenant).delete(job_id)

        assert deleted == self.model.delete(tenant, job_id)
        return self._seen()

    @rule(
        target=jobs,
        tenant=TENANTS,
        state=st.sampled_from(["queued", "dead", "completed", "cancelled"]),
    )
    def delete_many(self, tenant: str, state: str) -> MultipleResults[str]:
        deleted = self.store.onefold.tenant(tenant).dead.delete(state=_words((state,)))

        wanted = [
            record
            for record in self._records()
            if record.tenant == tenant and record.state == state and not record.stripped
        ]
        assert deleted == len(wanted)
        for record in wanted:
            self.model.delete(tenant, str(record.id))
        return self._seen()

    @rule()
    def do_the_chores(self) -> None:
        pruned = self.engine.prune()

        assert (pruned.deleted, pruned.stripped) == self.model.prune()
        assert self.engine.sweep() == self.model.sweep()
        assert self.engine.fold() == self.model.fold()

    @rule(tenant=TENANTS, job_id=jobs | st.just(NOWHERE))
    def look(self, tenant: str, job_id: str) -> None:
        onefold = self.store.onefold.tenant(tenant)

        job = onefold.get(job_id)

        record = self.model.seen(tenant, job_id)
        assert (job is None) == (record is None)
        if job is not None and record is not None:
            assert (stored(job.state), job.attempt, job.fence) == (
                record.state,
                record.attempt,
                record.fence,
            )
            assert onefold.keys.duplicates(job_id).count == self._noted(record)
            told = {a.fence: (a.number, a.outcome) for a in onefold.deliveries.attempts(job_id)}
            assert told == _history(record)

    def _noted(self, record: Record) -> int:
        return self.model.folded[record.number] + self.model.unfolded[record.number]

    def _records(self) -> list[Record]:
        return sorted(self.model.records.values(), key=lambda record: str(record.id))

    def _seen(self) -> MultipleResults[str]:
        """The ids that this step made, those of successors included."""
        ids = set(self.model.ids.values())
        for job_id, *place in self.store.rows(
            "select id, tenant, unique_kind, unique_key from {job}"
        ):
            if str(job_id) not in ids:
                self.model.adopt(str(job_id), *place)
        made = [r.id for r in self.model.records.values() if r.id and r.id not in self.known]
        self.known.update(made)
        return multiple(*made)

    @invariant()
    def the_same_is_stored(self) -> None:
        self._compare_jobs()
        self._compare_holders()
        self._compare_duplicates()
        self._compare_publish_keys()
        self._compare_histories()
        self._look_for_leftovers()

    def _compare_jobs(self) -> None:
        rows = self.store.rows(
            "select id, tenant, queue, kind, payload, state, priority, run_at, attempt, fence,"
            " vanished, generation, lease_until, keep_until, expires_at, reason, stripped,"
            " next is not null from {job} order by id"
        )
        stored: list[tuple[object, ...]] = [
            (
                str(row[0]),
                *row[1:5],
                STATES[row[5]],
                row[6],
                seconds(row[7]),
                *row[8:12],
                *(seconds(micros) for micros in row[12:15]),
                row[15],
                bool(row[16]),
                bool(row[17]),
            )
            for row in rows
        ]
        assert stored == [_row(record) for record in self._records()]

    def _compare_holders(self) -> None:
        now = int(moment(self.model.now).timestamp()) * 1_000_000
        rows = self.store.rows(
            "select tenant, unique_kind, unique_key, id from {job}"
            " where unique_key is not null and not yielded"
            f" and (unique_until > {now} or (unique_states >> state) & 1 = 1)"
        )
        held = {(tenant, kind, key): str(job_id) for tenant, kind, key, job_id in rows}
        assert len(held) == len(rows)
        assert held == {
            record.key: record.id for record in self._records() if record.holds(self.model.now)
        }

    def _look_for_leftovers(self) -> None:
        assert not self.store.rows("select id from {job} where state > 1 and next is not null")
        assert not self.store.rows(
            "select id from {job} where stripped and (payload <> 'null' or result is not null"
            " or error is not null or options is not null)"
        )
        assert not self.store.rows(
            "select id from {job} where (state = 1) <> (lease_until is not null)"
            " or (state > 1) <> (ended_at is not null)"
            # Who did it stays known; a queued job is nobody's.
            " or (state < 2 and (state = 1) <> (worker is not null))"
        )

    def _compare_duplicates(self) -> None:
        # The notes of this process are written behind.
        self.store.onefold.context.duplicate_log.flush()  # pyright: ignore[reportPrivateUsage]
        rows = self.store.rows(
            "select job_id, sum(number) from ("
            " select job_id, 1 as number from {duplicate}"
            " union all select job_id, count from {duplicate_tally}) as notes group by job_id"
        )
        counted = {str(job_id): int(number) for job_id, number in rows}
        assert counted == {r.id: self._noted(r) for r in self._records() if self._noted(r)}

    def _compare_publish_keys(self) -> None:
        rows = self.store.rows("select tenant, scope, key, result, expires_at from {claim}")
        assert {(*row[:3],): (row[3], seconds(row[4])) for row in rows} == {
            place: (self.model.ids[known.record], known.expires_at)
            for place, known in self.model.published.items()
        }

    def _compare_histories(self) -> None:
        rows = self.store.rows(
            "select job_id, fence, attempt, outcome, started_at, ended_at from {attempt}"
        )
        noted = {
            (str(job_id), fence): (attempt, outcome, seconds(started_at), seconds(ended_at))
            for job_id, fence, attempt, outcome, started_at, ended_at in rows
        }
        assert noted == {
            (record.id, fence): past
            for record in self._records()
            for fence, past in record.history.items()
        }


def _history(record: Record) -> dict[int, tuple[int, str]]:
    """By fence: what is told of every delivery, the one that only the job knows of included."""
    told = {fence: (past.attempt, past.outcome) for fence, past in record.history.items()}
    if record.state in {"running", "completed"}:
        told[record.fence] = (record.attempt, record.state)
    return told


def _deliveries(taken: Sequence[Record]) -> MultipleResults[tuple[str, int]]:
    """In the order in which the jobs were made: ids differ from run to run, and so does theirs."""
    made = sorted(taken, key=lambda record: record.number)
    return multiple(*((str(record.id), record.fence) for record in made))


def _row(record: Record) -> tuple[object, ...]:
    return (
        record.id,
        record.tenant,
        record.asked.queue,
        record.asked.kind,
        "null" if record.stripped else f'{{"n":{record.asked.payload}}}',
        record.state,
        record.asked.priority,
        record.run_at,
        record.attempt,
        record.fence,
        record.vanished,
        record.generation,
        record.lease_until,
        record.keep_until,
        record.expires_at,
        record.reason,
        record.stripped,
        record.successor is not None,
    )


@pytest.mark.timeout(SHRINKING)
def test_jobs_and_keys_behave_as_the_model_says(store: Store) -> None:
    class MachineOnThisStore(JobMachine):
        def __init__(self) -> None:
            super().__init__(store)

    run_state_machine_as_test(MachineOnThisStore, settings=LENGTH)
