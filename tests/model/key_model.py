"""Enqueues as plain Python: unique keys and publish keys, with no index and no lock."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from tests.model.job_records import (
    FINAL,
    Answer,
    Asked,
    Key,
    Place,
    Policy,
    PublishKey,
    Record,
    Refused,
    unique_key_of,
)

WIDTH = (None, "queued", "active", "exists")
KEEP = {"completed": 24 * 3600, "dead": 30 * 24 * 3600, "cancelled": 7 * 24 * 3600}


@dataclass
class KeyModel:
    """All jobs and publish keys, and the time: who has a key, and what an enqueue is told."""

    now: int
    records: dict[int, Record] = field(default_factory=dict[int, Record])
    ids: dict[int, str] = field(default_factory=dict[int, str])
    """The id of every record there ever was: a publish key may outlive its job."""
    published: dict[Place, PublishKey] = field(default_factory=dict[Place, PublishKey])
    folded: Counter[int] = field(default_factory=Counter[int])
    unfolded: Counter[int] = field(default_factory=Counter[int])
    """Suppressed duplicates by record."""
    numbers: Iterator[int] = field(default_factory=count)

    def by_id(self, job_id: str) -> Record | None:
        return next((r for r in self.records.values() if r.id == job_id), None)

    def seen(self, tenant: str, job_id: str) -> Record | None:
        """The job, where there is one for this tenant; a tombstone is none."""
        record = self.by_id(job_id)
        return record if record and record.tenant == tenant and not record.stripped else None

    def holder(self, key: Key | None) -> Record | None:
        holders = [r for r in self.records.values() if r.key == key and r.holds(self.now)]
        return holders[0] if key is not None and holders else None

    def adopt(self, job_id: str, tenant: str, unique_kind: str, unique_key: str) -> None:
        """A row that the model does not know by id: the successor that has this key."""
        key = (tenant, unique_kind, unique_key)
        record = next(r for r in self.records.values() if r.id is None and r.key == key)
        record.id = self.ids[record.number] = job_id

    def enqueue(
        self, tenant: str, items: Sequence[Asked], policy: Policy, new_id: Callable[[int], str]
    ) -> list[Answer]:
        """Answer for each item, or refuse all; `new_id` names the job that an item makes."""
        before = copy.deepcopy((self.records, self.published, self.folded, self.unfolded))
        known = self._known_publishes()
        newest: dict[int, Asked] = {}
        answers: list[Answer] = []
        for index, item in enumerate(items):
            expires = None if item.expires_in is None else self.now + item.expires_in
            asked = replace(item, expires_at=expires)
            try:
                number, answer, changes = self._one(
                    tenant, asked, policy, index, new_id, known=known
                )
            except Refused:
                self.records, self.published, self.folded, self.unfolded = before
                raise
            answers.append(answer)
            if changes:
                newest[number] = asked
            if answer.duplicate and number in self.records:
                self.unfolded[number] += 1
        for number, asked in newest.items():
            self._change(self.records[number], asked, policy, is_new=number not in before[0])
        return answers

    def _one(
        self,
        tenant: str,
        asked: Asked,
        policy: Policy,
        index: int,
        new_id: Callable[[int], str],
        *,
        known: dict[Place, tuple[PublishKey, str | None]],
    ) -> tuple[int, Answer, bool]:
        contents = (asked.kind, asked.queue, asked.payload)
        place = None if asked.publish_key is None else (tenant, asked.queue, asked.publish_key)
        if place is not None and place in known:
            publish, state = known[place]
            mismatch = publish.contents != contents
            if mismatch and policy.on_mismatch == "raise":
                raise Refused("KeyReused", index)
            told = Answer(self.ids[publish.record], duplicate=True, state=state, mismatch=mismatch)
            return publish.record, told, False

        key = unique_key_of(tenant, asked)
        self._expire_holder(key)
        holder = self.holder(key)
        if holder is None:
            record = self._create(tenant, asked, self.now + asked.delay)
            record.id = self.ids[record.number] = new_id(index)
            answer, changes = Answer(record.id), False
        else:
            record = holder
            holder.id = self.ids[holder.number] = holder.id or new_id(index)
            answer, changes = self._duplicate(record, asked, policy, index)
        if place is not None:
            publish = PublishKey(record.number, contents, self.now + asked.publish_for)
            self.published[place], known[place] = publish, (publish, record.state)
        return record.number, answer, changes

    def _duplicate(
        self, holder: Record, asked: Asked, policy: Policy, index: int
    ) -> tuple[Answer, bool]:
        if policy.on_duplicate == "raise":
            raise Refused("AlreadyEnqueued", index)
        replaced = policy.on_duplicate in {"replace", "rerun"} and holder.state == "queued"
        waits = policy.on_duplicate == "rerun" and holder.state == "running"
        changes = replaced or waits
        mismatch = holder.contents != (asked.kind, asked.payload) and not changes
        if mismatch and policy.on_mismatch == "raise":
            raise Refused("KeyReused", index)
        told = Answer(
            str(holder.id), duplicate=True, state=holder.state, mismatch=mismatch, replaced=replaced
        )
        return told, changes

    def _known_publishes(self) -> dict[Place, tuple[PublishKey, str | None]]:
        """All publish keys, with the states of their jobs: looked at before any unique key is."""
        return {
            place: (publish, record.state if (record := self.records.get(publish.record)) else None)
            for place, publish in self.published.items()
            if not self._is_over(publish)
        }

    def _is_over(self, publish: PublishKey) -> bool:
        """Known until it expires, and never forgotten before its job has ended."""
        record = self.records.get(publish.record)
        ended = record is None or record.state in FINAL
        return ended and publish.expires_at <= self.now

    def _create(
        self, tenant: str, asked: Asked, run_at: int, *, follows: Record | None = None
    ) -> Record:
        key = unique_key_of(tenant, asked)
        window = asked.unique_for
        scope = asked.unique_while or ("active" if window is None else None)
        until = None if window is None else self.now + window
        if follows is not None:
            # What the job before has promised is kept: the later end, the wider scope.
            scope = max(scope, follows.scope, key=WIDTH.index)
            until = max(until or 0, follows.window_until or 0) or None
        self._yield_to_newcomer(key)
        record = Record(
            number=next(self.numbers),
            id=None,
            tenant=tenant,
            asked=asked,
            run_at=run_at,
            created_at=self.now,
            key=key,
            scope=scope if key else None,
            window_until=until,
            expires_at=asked.expires_at,
        )
        self.records[record.number] = record
        return record

    def _expire_holder(self, key: Key | None) -> None:
        """A newcomer is not answered with a job that will never run: its life is over."""
        expired = [
            r
            for r in self.records.values()
            if key is not None and r.key == key and r.state == "queued" and not r.yielded
            if r.expires_at is not None and r.expires_at <= self.now
            if r.holds(self.now) or r.window_until is not None
        ]
        for record in expired:
            record.state, record.reason = "dead", "expired"
            record.vanished, record.not_before = 0, None
        self._end(expired)

    def _end(self, ended: Sequence[Record]) -> None:
        """What follows an end: the record has its time, and the successor has the key."""
        successors: list[tuple[Record, Asked]] = []
        for record in ended:
            record.ended_at = self.now
            record.keep_until = self.now + (KEEP | dict(record.asked.retention))[record.state]
            if record.successor is not None:
                successors.append((record, record.successor))
                record.successor, record.yielded = None, True
        self._follow(successors)

    def _follow(self, successors: Sequence[tuple[Record, Asked]]) -> None:
        for record, asked in successors:
            if self.holder(record.key) is None:
                self._create(record.tenant, asked, record.successor_run_at, follows=record)

    def _yield_to_newcomer(self, key: Key | None) -> None:
        """Somebody takes a key that is free: whose window is over has lost it for good.

        What waits there is older than the newcomer, and covered by it.
        """
        for other in self.records.values():
            if key is not None and other.key == key and other.window_until is not None:
                other.yielded, other.successor = True, None

    def _change(self, holder: Record, asked: Asked, policy: Policy, *, is_new: bool) -> None:
        """Give a holder the newest request: into a queued one, behind a running one."""
        wanted = self.now + asked.delay
        if holder.state == "running":
            holder.successor, holder.successor_run_at = asked, wanted
            return
        if policy.max_wait is not None and not is_new:
            wanted = min(wanted, holder.created_at + policy.max_wait)
        if policy.on_duplicate == "rerun" and not is_new:
            wanted = min(wanted, holder.run_at)  # a trigger never postpones what waits already
        if holder.not_before is not None:
            wanted = max(wanted, holder.not_before)
        if holder.attempt:
            holder.generation += 1
        holder.asked = replace(
            holder.asked, kind=asked.kind, payload=asked.payload, priority=asked.priority
        )
        holder.run_at, holder.attempt, holder.vanished, holder.successor = wanted, 0, 0, None
        holder.lapsed = False
