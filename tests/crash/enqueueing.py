"""Deaths while jobs are stored."""

from contextlib import suppress
from datetime import timedelta

from onefold import AlreadyEnqueued, NewJob, Onefold
from tests.crash.scenario import DAY, HOUR, Scenario
from tests.fixtures.place import Place


class EnqueueDuplicate(Scenario):
    def prepare(self, onefold: Onefold) -> None:
        self.holder = self.enqueue(onefold)

    def act(self, onefold: Onefold, place: Place) -> object:
        return self.enqueue(onefold, request_id="again")

    def check(self, onefold: Onefold) -> None:
        assert [job.id for job in self.jobs(onefold)] == [self.holder]
        # A note is written behind, and lost with its process.
        noted = onefold.keys.duplicates(self.holder)
        assert noted.count in {0, 1, 2}
        assert {one.request_id for one in noted.recent} <= {"again"}


class EnqueueBatch(Scenario):
    def prepare(self, onefold: Onefold) -> None:
        self.enqueue(onefold)

    def act(self, onefold: Onefold, place: Place) -> object:
        keys = ["c", "a", "", "b", "a"]
        return onefold.enqueue_many(
            [
                NewJob(
                    "crash",
                    unique_key=self.key + suffix,
                    queue=self.key,
                    idempotency_key=f"{self.key} {number}",
                )
                for number, suffix in enumerate(keys)
            ]
        )

    def check(self, onefold: Onefold) -> None:
        keys = sorted(job.unique_key or "" for job in self.jobs(onefold))
        assert keys == [self.key, f"{self.key}a", f"{self.key}b", f"{self.key}c"]


class EnqueueRefused(Scenario):
    """With `raise`, what the call has stored is taken back before the error leaves it."""

    def prepare(self, onefold: Onefold) -> None:
        self.holder = self.enqueue(onefold)

    def act(self, onefold: Onefold, place: Place) -> object:
        jobs = [
            NewJob("crash", unique_key=self.key + "a", queue=self.key, idempotency_key=self.key),
            NewJob("crash", unique_key=self.key, queue=self.key),
        ]
        with place.transaction() as connection, suppress(AlreadyEnqueued):
            onefold.within(connection).enqueue_many(jobs, on_duplicate="raise")
        try:
            onefold.enqueue_many(jobs, on_duplicate="raise")
        except AlreadyEnqueued as refused:
            return refused
        raise AssertionError

    def check(self, onefold: Onefold) -> None:
        assert [job.id for job in self.jobs(onefold)] == [self.holder]

    def epilogue(self, onefold: Onefold) -> None:
        assert onefold.enqueue("crash", unique_key=self.key + "a").inserted
        assert onefold.enqueue("crash", queue=self.key, idempotency_key=self.key).inserted


class Publish(Scenario):
    def act(self, onefold: Onefold, place: Place) -> object:
        return self.enqueue(onefold, idempotency_key=self.key)

    def check(self, onefold: Onefold) -> None:
        (job,) = self.jobs(onefold)
        assert self.act(onefold, Place("")) == job.id

    def epilogue(self, onefold: Onefold) -> None:
        (job,) = self.jobs(onefold)
        onefold.cancel(job.id)
        # The unique key is free again; the publish key never is, while it is remembered.
        assert self.act(onefold, Place("")) == job.id
        assert self.enqueue(onefold) != job.id


class PublishExpired(Scenario):
    """The publish key was remembered for an hour, and its job has ended."""

    later = 2 * HOUR

    def prepare(self, onefold: Onefold) -> None:
        self.old = self.enqueue(onefold, idempotency_key=self.key, idempotency_for=HOUR)
        onefold.cancel(self.old)

    def act(self, onefold: Onefold, place: Place) -> object:
        return self.enqueue(onefold, idempotency_key=self.key)

    def check(self, onefold: Onefold) -> None:
        assert self.states(onefold) == ["cancelled", "ready"]
        assert self.act(onefold, Place("")) != self.old


class Replace(Scenario):
    def prepare(self, onefold: Onefold) -> None:
        self.holder = self.enqueue(onefold, "old")

    def act(self, onefold: Onefold, place: Place) -> object:
        return self.enqueue(onefold, "new", on_duplicate="replace")

    def check(self, onefold: Onefold) -> None:
        (job,) = self.jobs(onefold)
        assert (job.id, job.payload, job.attempt) == (self.holder, "new", 0)


class RerunRunning(Scenario):
    def prepare(self, onefold: Onefold) -> None:
        self.enqueue(onefold, "old")
        self.taken = self.take(onefold)

    def act(self, onefold: Onefold, place: Place) -> object:
        return self.enqueue(onefold, "new", on_duplicate="rerun")

    def check(self, onefold: Onefold) -> None:
        assert self.states(onefold) == ["running"]

    def epilogue(self, onefold: Onefold) -> None:
        onefold.deliveries.finish(self.taken)
        assert self.payloads(onefold) == [("completed", "old"), ("ready", "new")]
        super().epilogue(onefold)


class WindowOver(Scenario):
    """The holder's time is over: it is released, and the newcomer stored."""

    later = HOUR
    reusable = False

    def prepare(self, onefold: Onefold) -> None:
        self.old = self.enqueue(onefold, unique_for=timedelta(minutes=1))

    def act(self, onefold: Onefold, place: Place) -> object:
        return self.enqueue(onefold, unique_for=DAY)

    def check(self, onefold: Onefold) -> None:
        assert self.states(onefold) == ["ready", "ready"]
        ids = {job.id for job in self.jobs(onefold)}
        assert onefold.enqueue("crash", unique_key=self.key).id in ids - {self.old}


class HolderExpired(Scenario):
    """The holder expired while it waited: it is buried, and the newcomer stored."""

    later = 2 * HOUR

    def prepare(self, onefold: Onefold) -> None:
        self.enqueue(onefold, "old", expires_at=self.clock() + HOUR)

    def act(self, onefold: Onefold, place: Place) -> object:
        return self.enqueue(onefold, "new")

    def check(self, onefold: Onefold) -> None:
        assert self.payloads(onefold) == [("dead", "old"), ("ready", "new")]


class WithinATransaction(Scenario):
    """The caller's row and the job are there together, or not at all."""

    def act(self, onefold: Onefold, place: Place) -> object:
        with place.transaction() as connection:
            within = onefold.within(connection)
            answer = within.enqueue(
                "crash", unique_key=self.key, queue=self.key, idempotency_key=self.key
            )
            if answer.inserted:
                connection.execute(f"insert into {place.effects} (name) values ('{self.key}')")
        self.effects = place.rows(f"select name from {place.effects} where name = '{self.key}'")
        return answer.id

    def check(self, onefold: Onefold) -> None:
        assert self.states(onefold) == ["ready"]

    def epilogue(self, onefold: Onefold) -> None:
        assert self.effects == [(self.key,)]
        (job,) = self.jobs(onefold)
        onefold.cancel(job.id)
        assert self.enqueue(onefold) != job.id


SCENARIOS: list[type[Scenario]] = [
    EnqueueDuplicate, EnqueueBatch, EnqueueRefused, Publish, PublishExpired,
    Replace, RerunRunning, WindowOver, HolderExpired, WithinATransaction,
]  # fmt: skip
