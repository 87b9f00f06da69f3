"""Queues of the server: their settings, and the queues of tenants."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from onefold.errors import InvalidInput, QueueNotEmpty
from onefold.model.checks import qualified
from onefold.model.lifecycle import Retention
from onefold.model.limit import Limit
from onefold.model.queue import QueueCounts, QueueSettings, SigningSecret, new_secret
from onefold.model.retry import Exponential, Fixed
from onefold_contract.cases.common import AT_ONCE, DAY, HOUR, MINUTE, SECOND
from onefold_contract.cases.groups import fill
from onefold_contract.subject import Subject

__all__ = ["TestQualifiedNames", "TestServedQueues"]

ENDPOINT = "https://example.com/hook"


class TestServedQueues:
    """Save, find and delete queues."""

    def test_a_queue_is_as_it_was_said(self, subject: Subject, queue: str) -> None:
        said = QueueSettings(
            endpoint=ENDPOINT,
            mode="ack",
            max_attempts=3,
            backoff=Exponential(base=MINUTE),
            timeout=2.5 * SECOND,
            ack_timeout=MINUTE,
            ack_timeout_action="dead",
            concurrency=5,
            rate_limit="100/m",
            retention=Retention(completed=DAY, dead=timedelta(0)),
            signing_secret=new_secret(),
            previous_secrets=(SigningSecret(new_secret(), subject.clock.now),),
            headers={"X-Shop": "1"},
            paused=True,
            paused_reason="the shop is closed",
        )
        saved = subject.queues.save(queue, said)
        assert saved.settings() == said
        assert saved.is_new
        assert saved == subject.queues.get(queue)
        assert not subject.queues.save(queue, said).is_new
        assert (saved.name, saved.tenant, saved.full_name) == (queue, "", queue)
        assert saved.header_names == ("X-Shop",)
        assert saved.created_at == saved.updated_at == subject.clock.now

    def test_a_queue_stays_paused_and_says_why_until_somebody_lets_it_go_on(
        self, subject: Subject, queue: str
    ) -> None:
        said = QueueSettings(max_attempts=3, paused=True, paused_reason="the shop is closed")
        assert subject.queues.save(queue, said).paused

        again = subject.queues.save(queue, QueueSettings(max_attempts=4))
        assert (again.paused, again.paused_reason) == (True, said.paused_reason)
        for _ in range(2):
            resumed = subject.queues.resume(queue)
            assert resumed == subject.queues.get(queue)
            assert resumed is not None
            assert (resumed.paused, resumed.paused_reason) == (False, None)
            assert resumed.max_attempts == 4

        paused = subject.queues.pause(queue)
        assert paused is not None
        assert paused.paused
        assert not subject.queues.save(queue, replace(again, paused=False)).paused
        found = subject.queues.get(queue)
        assert found is not None
        assert found.paused_reason is None

    def test_a_queue_that_is_not_there_is_neither_paused_nor_resumed(
        self, subject: Subject, queue: str
    ) -> None:
        fill(subject, f"{queue} of another name", 1)
        for call in (subject.queues.pause, subject.queues.resume):
            with pytest.raises(InvalidInput, match=f"queue '{queue}' is not known.* There are "):
                call(queue)
        assert queue not in {found.name for found in subject.queues.find()}
        for call in (subject.tenant("acme").queues.pause, subject.tenant("acme").queues.resume):
            assert call(queue) is None
        assert subject.queues.get(queue) is None

    def test_a_queue_is_stopped_and_says_why_unless_it_has_another_endpoint(
        self, subject: Subject, queue: str
    ) -> None:
        said = QueueSettings(endpoint=ENDPOINT, signing_secret=new_secret(), max_attempts=3)
        before = subject.queues.save(queue, said)
        assert not subject.queues.pause_endpoint(queue, endpoint=f"{ENDPOINT}/old", why="gone")
        assert subject.queues.get(queue) == before
        assert not subject.queues.pause_endpoint(f"{queue}-none", endpoint=ENDPOINT, why="gone")
        assert subject.queues.pause_endpoint(queue, endpoint=ENDPOINT, why="gone")
        found = subject.queues.get(queue)
        assert found is not None
        assert found.paused
        assert found.settings() == replace(said, paused=True, paused_reason="gone")

    def test_a_queue_is_changed_but_not_by_a_new_one(self, subject: Subject, queue: str) -> None:
        first = subject.queues.save(queue, QueueSettings(backoff=Fixed(SECOND)), new=True)
        subject.clock.advance(MINUTE)
        with pytest.raises(InvalidInput, match="belongs to a queue that exists"):
            subject.queues.save(queue, QueueSettings(max_attempts=4, paused=True), new=True)
        assert subject.queues.get(queue) == first
        second = subject.queues.save(queue, QueueSettings(max_attempts=2))
        assert second.settings() == QueueSettings(max_attempts=2, paused=False)
        now = subject.clock.now
        assert second.created_at == first.created_at == first.updated_at == now - MINUTE
        assert second.updated_at == now

    def test_an_endpoint_has_a_secret_and_keeps_it(self, subject: Subject, queue: str) -> None:
        assert subject.queues.save(queue).secrets == ()
        said = QueueSettings(endpoint=ENDPOINT)
        (made,) = subject.queues.save(queue, said).secrets
        assert made.secret.startswith("whsec_")
        assert subject.queues.save(queue, said).secrets == (made,)
        other = replace(said, signing_secret=new_secret(), previous_secrets=(made,))
        assert subject.queues.save(queue, other).secrets == other.secrets

    def test_a_queue_that_nobody_made_is_not_there(self, subject: Subject, queue: str) -> None:
        fill(subject, queue, 1)
        assert subject.queues.get(queue, counts=True) is None
        assert subject.queues.delete(queue) is False
        assert len(subject.queues.find(saved=True)) == 0
        assert subject.existing_queue(queue).created_at is None

    def test_its_limits_are_the_engines_and_those_of_groups_are_not_its_to_take_off(
        self, subject: Subject, queue: str
    ) -> None:
        subject.queues.save(queue, QueueSettings(concurrency=2, rate_limit="10/s"))
        assert subject.existing_queue(queue).limit == Limit(concurrency=2, rate="10/s")
        fill(subject, queue, 3)
        assert subject.take([queue], limit=9) == []
        assert len(subject.take_limited(queue, limit=9).jobs) == 2
        subject.queues.save(queue)
        assert subject.existing_queue(queue).limit is None
        assert len(subject.take([queue], limit=9)) == 1
        subject.queues.set_limits(queue, group_limit=Limit(concurrency=1))
        subject.queues.save(queue, QueueSettings(concurrency=2))
        found = subject.existing_queue(queue)
        assert (found.limit, found.group_limit) == (Limit(concurrency=2), Limit(concurrency=1))
        subject.queues.save(queue)
        found = subject.existing_queue(queue)
        assert (found.limit, found.group_limit) == (None, Limit(concurrency=1))
        assert subject.deliveries.look([queue])[0].controlled
        assert not found.declared

    def test_it_tells_of_pauses_holds_and_failures(self, subject: Subject, queue: str) -> None:
        tenant = subject.tenant("acme")
        tenant.queues.save(queue, QueueSettings(endpoint=ENDPOINT))
        name = qualified("acme", queue)
        subject.queues.pause(name)
        subject.queues.hold(name, after=MINUTE, why="circuit")
        subject.queues.count_failure(name)
        found = tenant.queues.get(queue)
        assert found is not None
        assert found in subject.queues.pushed()
        assert (found.paused, found.held_why, found.failures) == (True, "circuit", 1)
        assert found.held_until == subject.clock.now + MINUTE

    def test_another_endpoint_begins_afresh(self, subject: Subject, queue: str) -> None:
        subject.queues.save(queue, QueueSettings(endpoint=ENDPOINT))
        subject.queues.count_failure(queue)
        subject.queues.hold(queue, after=HOUR, why="backpressure")
        subject.queues.save(queue, QueueSettings(endpoint=ENDPOINT))
        assert subject.existing_queue(queue).held_until is not None
        saved = subject.queues.save(queue, QueueSettings(endpoint=f"{ENDPOINT}/2"))
        assert (saved.held_until, saved.failures) == (None, 0)

    def test_it_counts_what_is_in_it(self, subject: Subject, queue: str) -> None:
        tenant = subject.tenant("acme")
        tenant.queues.save(queue)
        name = qualified("acme", queue)
        for delay in (timedelta(0), HOUR):
            for group in ("a", None):
                tenant.enqueue("email", queue=name, delay=delay, group_key=group)
        for _ in range(3):
            tenant.enqueue("email", queue=name, backoff=AT_ONCE)
        first, second, _ = subject.take([name], limit=3)
        subject.deliveries.bury([first], reason="broken")
        subject.deliveries.park(second, ack_timeout=5 * MINUTE)
        found = tenant.queues.get(queue, counts=True)
        assert found is not None
        counts = QueueCounts(ready=2, scheduled=2, running=2, awaiting=1, dead=1)
        assert found.counts == counts
        assert [each.counts for each in tenant.queues.find(saved=True)] == [counts]
        assert [each.counts for each in tenant.queues.find(saved=True, counts=False)] == [None]

    def test_they_are_listed_by_name_a_page_at_a_time(self, subject: Subject) -> None:
        names = [f"z queue {number:02}" for number in range(7)]
        for name in reversed(names):
            subject.queues.save(name)
        first = subject.queues.find(limit=3, saved=True)
        assert [queue.name for queue in first] == names[:3]
        rest = subject.queues.find(after=first.next, saved=True)
        assert [queue.name for queue in rest] == names[3:]
        assert rest.next is None
        page = subject.queues.find(after=names[1], limit=2)
        assert [queue.name for queue in page] == names[2:4]
        assert page.next == names[3]
        for limit in (0, "1"):
            with pytest.raises(InvalidInput, match="limit"):
                subject.queues.find(limit=limit)  # type: ignore[arg-type]

    def test_a_tenant_finds_its_own_queues(self, subject: Subject, queue: str) -> None:
        tenant = subject.tenant("acme")
        tenant.queues.save(queue)
        unsaved = qualified("acme", f"{queue} unsaved")
        tenant.enqueue("email", queue=unsaved)
        subject.queues.save(f"{queue} of another")
        mine = [found.full_name for found in tenant.queues.find() if queue in found.name]
        assert mine == [qualified("acme", queue), unsaved]
        assert [found.name for found in tenant.queues.find(saved=True)] == [queue]
        every = {found.full_name for found in subject.queues.find() if queue in found.name}
        assert every == {*mine, f"{queue} of another"}
        others = [found.name for found in subject.queues.find(saved=True)]
        assert others == [f"{queue} of another"]
        assert subject.keys.erase(tenant="acme").queues == 1
        assert tenant.queues.get(queue) is None
        assert subject.queues.get(f"{queue} of another") is not None

    def test_a_queue_is_removed_with_all_that_was_said(self, subject: Subject, queue: str) -> None:
        subject.queues.save(queue, QueueSettings(endpoint=ENDPOINT, concurrency=1))
        subject.queues.pause(queue)
        subject.queues.hold(queue, after=HOUR, why="backpressure")
        assert subject.queues.delete(queue) is True
        assert subject.queues.get(queue) is None
        fill(subject, queue, 2)
        assert len(subject.take([queue], limit=9)) == 2

    @pytest.mark.parametrize("state", ["queued", "grouped", "running"])
    def test_a_queue_is_not_removed_before_its_jobs_have_ended(
        self, subject: Subject, queue: str, state: str
    ) -> None:
        subject.queues.save(queue)
        fill(subject, queue, 1, "a" if state == "grouped" else None)
        if state == "running":
            subject.take_one(queue)
        with pytest.raises(QueueNotEmpty, match="force"):
            subject.queues.delete(queue)
        assert subject.queues.get(queue) is not None
        (job,) = subject.find(queue=queue)
        subject.cancel(job.id)
        assert subject.queues.delete(queue) is True
        assert subject.existing_job(job.id).state == "cancelled"

    def test_a_queue_is_removed_with_its_jobs_by_force(self, subject: Subject, queue: str) -> None:
        subject.queues.save(queue)
        ids = [*fill(subject, queue, 5), *fill(subject, queue, 5, "a")]
        ids += fill(subject.tenant("other"), queue, 2)
        running, done = subject.take([queue], limit=2)
        subject.deliveries.finish([done])
        assert subject.queues.delete(queue, force=True) is True
        assert subject.deliveries.finish([running])[0].status == "lost"
        left = [job.id for job in (*subject.find(), *subject.tenant("other").find())]
        assert left == [done.id]
        assert set(left) < set(ids)


class TestQualifiedNames:
    """Queues of different tenants with the same name are different queues."""

    def test_they_have_settings_and_jobs_of_their_own(self, subject: Subject, queue: str) -> None:
        names: list[str] = []
        for number, tenant in enumerate(("", "acme", "acme.eu")):
            own = subject.tenant(tenant) if tenant else subject
            own.queues.save(queue, QueueSettings(max_attempts=number + 1))
            names.append(qualified(tenant, queue))
            own.enqueue("email", {"n": number}, queue=names[-1])
        assert len(set(names)) == 3
        for number, name in enumerate(names):
            assert subject.take_one(name).payload == {"n": number}
        found = subject.tenant("acme").queues.get(queue)
        assert found is not None
        assert found.max_attempts == 2
        # A tenant whose name cannot be part of a queue's has none.
        with pytest.raises(InvalidInput, match="tenant"):
            subject.tenant("Ümläut").queues.save("payments")
