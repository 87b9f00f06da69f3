"""Shards: rules that hold for any number of shards."""

from collections import Counter

import pytest

from onefold.model.claim import Won
from onefold.model.ids import shard_of
from onefold.model.job import Job, NewJob
from onefold_contract.cases.common import DAY, HOUR, MINUTE, SECOND, foremost, spread, stored
from onefold_contract.subject import Subject

__all__ = ["TestAllShards", "TestShardOrder", "TestTurns"]


class TestTurns:
    """Takes rotate over the shards, and no shard waits until another is empty."""

    def test_as_many_takes_as_there_are_shards_visit_each_of_them(self, subject: Subject) -> None:
        spread(subject, each=2)
        for _ in range(2):
            taken = [subject.take_one() for _ in range(subject.shards)]
            visited = [shard_of(job.id, subject.shards) for job in taken]
            assert sorted(visited) == list(range(subject.shards))

    def test_calls_between_the_takes_and_takes_of_other_queues_do_not_use_up_a_turn(
        self, subject: Subject
    ) -> None:
        """Otherwise a worker that takes and finishes would start at every second shard only."""
        spread(subject, each=2)
        visited: list[int] = []
        for _ in range(subject.shards):
            job = subject.take_one()
            subject.deliveries.heartbeat([job], lease=MINUTE)
            subject.deliveries.finish([job])
            assert subject.take(["other"]) == []
            visited.append(shard_of(job.id, subject.shards))
        assert sorted(visited) == list(range(subject.shards))

    def test_finish_and_take_goes_round_too(self, subject: Subject) -> None:
        spread(subject, each=2)
        running: list[Job] = []
        visited: list[int] = []
        for _ in range(subject.shards):
            _, running = subject.deliveries.finish_and_take(running, worker="worker", lease=MINUTE)
            visited += [shard_of(job.id, subject.shards) for job in running]
        assert sorted(visited) == list(range(subject.shards))

    def test_a_shard_that_is_never_empty_starves_no_other(self, subject: Subject) -> None:
        jobs = spread(subject, each=2)
        endless = shard_of(jobs[0].id, subject.shards)
        others = {job.id for job in jobs if shard_of(job.id, subject.shards) != endless}
        on_others = Counter(shard_of(job_id, subject.shards) for job_id in others)
        for _ in range(subject.shards * max(on_others.values(), default=0)):
            job = subject.take_one()
            subject.deliveries.finish([job])
            others.discard(job.id)
            if shard_of(job.id, subject.shards) == endless:
                # The same key, so the same shard; with a better priority than all that wait there.
                subject.enqueue("email", unique_key=job.unique_key, priority=-1)
        assert others == set()

    def test_a_shard_with_little_to_give_leaves_room_for_the_next(self, subject: Subject) -> None:
        jobs = spread(subject, each=1)
        taken = subject.take(limit=len(jobs) + 1)
        assert {job.id for job in taken} == {job.id for job in jobs}
        assert len(taken) == len(jobs)

    def test_the_limit_of_a_queue_is_one_for_all_shards(self, subject: Subject) -> None:
        spread(subject, each=5)
        assert len(subject.take({"default": 2}, limit=100)) == 2
        assert len(subject.take({"other": 5, "default": 3}, limit=100)) == 3


class TestShardOrder:
    """Priority, run_at and id, strictly within a shard."""

    @pytest.mark.parametrize("limit", [1, 3, 1000])
    def test_takes_give_what_is_due_in_order(self, subject: Subject, limit: int) -> None:
        jobs = [
            subject.existing_job(
                subject.enqueue(
                    "email",
                    unique_key=f"{n}",
                    priority=n * 7 % 5,
                    run_at=subject.clock.now - n * 11 % 3 * MINUTE,
                ).id
            )
            for n in range(12 * subject.shards)
        ]
        jobs.sort(key=lambda job: (job.priority, job.run_at, job.id))
        order = [job.id for job in jobs]
        while order:
            taken = subject.take(limit=limit)
            assert 0 < len(taken) <= limit
            assert [job.id for job in taken] == foremost(subject, order, taken)
            gone = {job.id for job in taken}
            order = [job_id for job_id in order if job_id not in gone]
        assert subject.take() == []


class TestAllShards:
    """A call on many jobs or keys runs on every shard, once."""

    def test_a_publish_key_finds_its_job_on_any_other_shard(self, subject: Subject) -> None:
        published = {
            f"publish {n}": subject.enqueue(
                "email", unique_key=f"k {n}", idempotency_key=f"publish {n}"
            ).id
            for n in range(4 * subject.shards)
        }
        jobs = subject.take(limit=1000)
        subject.deliveries.finish(jobs)
        again = subject.enqueue_many([NewJob("email", idempotency_key=key) for key in published])
        assert [answer.id for answer in again] == list(published.values())
        assert {answer.state for answer in again} == {"completed"}

    def test_a_publish_key_stands_for_a_holder_on_any_other_shard(self, subject: Subject) -> None:
        for job in spread(subject, each=2):
            key = f"publish {job.unique_key}"
            held = subject.enqueue("email", unique_key=job.unique_key, idempotency_key=key)
            subject.cancel(job.id)
            assert held.id == job.id
            assert subject.enqueue("email", idempotency_key=key).id == job.id

    def test_a_sweep_asks_for_the_jobs_of_publish_keys_on_every_shard(
        self, subject: Subject
    ) -> None:
        jobs = spread(subject, each=2)
        keyed = [
            subject.enqueue("email", unique_key=f"p {n}", idempotency_key=f"p {n}", queue="keyed")
            for n in range(len(jobs))
        ]
        subject.clock.advance(2 * DAY)
        assert subject.deliveries.sweep() == 0
        subject.deliveries.finish(subject.take(["keyed"], limit=len(keyed)))
        assert subject.deliveries.sweep() == len(keyed)

    def test_every_delivery_is_finished_retried_and_rescued(self, subject: Subject) -> None:
        jobs = spread(subject, each=2, max_attempts=8)
        taken = subject.take(limit=len(jobs))
        beats = subject.deliveries.heartbeat(taken, lease=HOUR)
        assert [beat.lost for beat in beats] == [False] * len(jobs)
        ended = subject.deliveries.retry(taken, after=SECOND)
        assert [(item.id, item.status) for item in ended] == [(j.id, "accepted") for j in taken]
        subject.clock.advance(SECOND)
        assert len(subject.take(limit=len(jobs), lease=SECOND)) == len(jobs)
        subject.clock.advance(SECOND)
        assert subject.deliveries.rescue().requeued == len(jobs)
        subject.clock.advance(DAY)
        finished = subject.deliveries.finish(subject.take(limit=len(jobs)))
        assert [item.status for item in finished] == ["accepted"] * len(jobs)

    def test_every_successor_is_stored_when_its_holder_ends(self, subject: Subject) -> None:
        jobs = spread(subject, each=2)
        taken = subject.take(limit=len(jobs))
        newer = [NewJob("email", {"n": 2}, unique_key=job.unique_key) for job in taken]
        answers = subject.enqueue_many(newer, on_duplicate="rerun")
        assert [answer.id for answer in answers] == [job.id for job in taken]
        subject.deliveries.finish(taken)
        successors = subject.take(limit=1000)
        assert {job.unique_key for job in successors} == {job.unique_key for job in jobs}
        assert [job.payload for job in successors] == [{"n": 2}] * len(jobs)

    def test_every_queued_holder_takes_the_newer_request(self, subject: Subject) -> None:
        jobs = spread(subject, each=2)
        newer = [NewJob("email", {"n": 2}, unique_key=job.unique_key) for job in jobs]
        answers = subject.enqueue_many(newer, on_duplicate="replace")
        assert [answer.id for answer in answers] == [job.id for job in jobs]
        assert {answer.replaced for answer in answers} == {True}
        assert [subject.existing_job(job.id).payload for job in jobs] == [{"n": 2}] * len(jobs)

    def test_every_dead_letter_goes_round_again(self, subject: Subject) -> None:
        jobs = spread(subject, each=2)
        subject.deliveries.bury(subject.take(limit=len(jobs)), reason="broken")
        first = subject.dead.replay(state="dead", limit=1)
        rest = subject.dead.replay(state="dead")
        assert (first.inserted, rest.inserted) == (1, len(jobs) - 1)
        assert len(subject.take(limit=1000)) == len(jobs)

    def test_pages_have_every_job_once_and_in_order(self, subject: Subject) -> None:
        made = sorted(job.id for job in spread(subject, each=3))
        for newest_first, expected in ((False, made), (True, made[::-1])):
            found: list[str] = []
            after: str | None = None
            while True:
                page = subject.find(limit=2, after=after, newest_first=newest_first)
                found += [job.id for job in page]
                after = page.next
                if after is None:
                    break
            assert found == expected

    def test_chores_tidy_every_shard(self, subject: Subject) -> None:
        jobs = spread(subject, each=2)
        for job in jobs:
            subject.enqueue("email", unique_key=job.unique_key)
            assert subject.keys.duplicates(job.id).count == 1
        # A note of an earlier case may have come after its job was erased.
        assert subject.deliveries.fold() >= len(jobs)
        subject.deliveries.finish(subject.take(limit=len(jobs)))
        subject.clock.advance(2 * DAY)
        assert subject.deliveries.prune().deleted == len(jobs)
        assert stored(subject) == 0

    def test_claims_of_every_shard_are_kept_apart_and_swept(self, subject: Subject) -> None:
        keys = [f"claim {n}" for n in range(6 * subject.shards)]
        for key in keys:
            answer = subject.claim("scope", key, retention=HOUR)
            assert isinstance(answer, Won)
            subject.keys.settle(answer.claim, key)
        for key in keys:
            replayed = subject.claim("scope", key)
            assert getattr(replayed, "result", None) == key
        subject.clock.advance(HOUR)
        assert subject.deliveries.sweep() == len(keys)

    def test_erase_forgets_a_tenant_everywhere(self, subject: Subject) -> None:
        acme = subject.tenant("acme")
        others = len(spread(subject, each=1))
        jobs = spread(acme, each=2)
        for job in jobs:
            acme.enqueue("email", unique_key=job.unique_key, idempotency_key=job.unique_key)
        erased = subject.keys.erase(tenant="acme")
        assert (erased.jobs, erased.claims) == (len(jobs), len(jobs))
        assert (stored(acme), stored(subject)) == (0, others)
