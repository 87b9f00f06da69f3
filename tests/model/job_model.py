"""Jobs and their keys as plain Python: what the engine is compared with.

Written from the rules, not from the statements. An id is the engine's own; a successor has none
until the machine has seen its row.
"""

from collections.abc import Callable, Iterable, Sequence

from tests.model.job_records import FINAL, Answer, Record, Refused, take_order
from tests.model.key_model import KeyModel

POISON = 5


class JobModel(KeyModel):
    """Deliveries, what operators do, and the chores."""

    def due(self, queues: Sequence[str]) -> list[Record]:
        """What a take may give, in its order."""
        due = [
            r
            for r in self.records.values()
            if r.state == "queued" and r.asked.queue in queues and r.run_at <= self.now
            if r.expires_at is None or r.expires_at > self.now
        ]
        return sorted(due, key=lambda r: (*take_order(r, queues), r.id or ""))

    def without_ties(self, queues: Sequence[str], limit: int) -> int:
        """A limit that leaves no choice to the ids, which differ from run to run."""
        order = [take_order(record, queues) for record in self.due(queues)]
        while limit < len(order) and order[limit] == order[limit - 1]:
            limit += 1
        return limit

    def take(self, queues: Sequence[str], limit: int, lease: int) -> list[Record]:
        taken = self.due(queues)[:limit]
        for record in taken:
            record.state, record.lease_until = "running", self.now + lease
            record.taken_at = self.now
            record.attempt += 1
            record.fence += 1
            record.not_before, record.lapsed = None, False
            if record.scope == "queued":
                record.scope = None
        return taken

    def end(
        self, word: str, deliveries: Sequence[tuple[str, int]], after: int | None = None
    ) -> list[tuple[str, str | None]]:
        """Finish, retry, defer, bury, cancel or hand back: what each delivery is told."""
        return self.end_mixed([(word, delivery) for delivery in deliveries], after)

    def end_mixed(
        self, words: Sequence[tuple[str, tuple[str, int]]], after: int | None = None
    ) -> list[tuple[str, str | None]]:
        said: dict[tuple[str, int], str] = {}
        ended: list[Record] = []
        for word, (job_id, fence) in words:
            record = self.by_id(job_id)
            if record is not None and record.fence == fence and self._counts(record, word):
                self._word(record, word, after)
                said[job_id, fence] = record.state
                ended.append(record)
        self._settle(ended)
        return [self._told(word, delivery, said.get(delivery)) for word, delivery in words]

    def _counts(self, record: Record, word: str) -> bool:
        late = word == "finish" and record.state == "queued" and record.lapsed
        return record.state == "running" or late

    def _told(
        self, word: str, delivery: tuple[str, int], said: str | None
    ) -> tuple[str, str | None]:
        if said is not None:
            return "accepted", said
        leaves = {
            "finish": {"completed"},
            "retry": {"queued", "dead"},
            "bury": {"dead"},
            "cancel": {"cancelled"},
        }.get(word, {"queued"})
        record = self.by_id(delivery[0])
        if record is None:
            return "lost", None
        same = record.fence == delivery[1] and record.state in leaves
        return ("already" if same else "lost"), record.state

    def _word(self, record: Record, word: str, after: int | None) -> None:
        record.lease_until, record.lapsed = None, False
        record.vanished = record.vanished if word == "hand_back" else 0
        match word:
            case "finish":
                record.state, record.reason = "completed", None
            case "bury":
                record.state, record.reason = "dead", "told"
                record.note("dead", self.now)
            case "cancel":
                record.state, record.reason = "cancelled", "told"
                record.note("cancelled", self.now)
            case "retry":
                self._fail(record, "failed", after)
                record.note("dead" if record.state == "dead" else "retried", self.now)
            case "defer":
                record.note("deferred", self.now)
                record.state, record.run_at = "queued", self.now + (after or 0)
                record.attempt -= 1
            case _:
                record.state, record.run_at = "queued", self.now
                record.attempt -= 1

    def _fail(self, record: Record, reason: str, after: int | None = None) -> None:
        if record.attempt >= record.asked.max_attempts:
            record.state, record.reason = "dead", reason
        else:
            record.state, record.reason = "queued", None
            record.run_at = self.now + (record.asked.backoff if after is None else after)
            record.not_before = record.run_at

    def _settle(self, moved: Iterable[Record]) -> None:
        ended = [record for record in moved if record.state in FINAL]
        self._end(ended)
        for record in ended:
            if record.keep_until == self.now:
                self._discard(record)

    def _discard(self, record: Record) -> str:
        """Delete a record, or strip it where its key is promised for longer."""
        if self.now < (record.window_until or 0) and not record.yielded:
            record.stripped, record.scope, record.reason = True, None, None
            record.history.clear()
            record.keep_until = record.window_until
            return "stripped"
        self._forget(record)
        return "deleted"

    def _forget(self, record: Record) -> None:
        for mapping in (self.records, self.folded, self.unfolded):
            mapping.pop(record.number, None)

    def heartbeat(self, deliveries: Sequence[tuple[str, int]], lease: int) -> list[bool]:
        alive: list[bool] = []
        for job_id, fence in deliveries:
            record = self.by_id(job_id)
            same = record is not None and (record.state, record.fence) == ("running", fence)
            if record is not None and same:
                record.lease_until = self.now + lease
            alive.append(same)
        return alive

    def rescue(self) -> tuple[int, int, int]:
        lapsed = [r for r in self.records.values() if (r.lease_until or self.now + 1) <= self.now]
        for record in lapsed:
            record.lease_until = None
            record.note("lease expired", self.now)
            record.vanished += 1
            if record.vanished >= POISON:
                record.state, record.reason = "dead", "poison"
            else:
                self._fail(record, "lease expired")
                record.lapsed = record.state == "queued"
        self._settle(lapsed)
        buried = sum(record.state == "dead" for record in lapsed)
        expired = [
            r
            for r in self.records.values()
            if r.state == "queued" and r.expires_at is not None and r.expires_at <= self.now
        ]
        for record in expired:
            record.state, record.reason, record.vanished = "dead", "expired", 0
        self._settle(expired)
        return len(lapsed) - buried, buried, len(expired)

    def cancel(self, tenant: str, job_id: str, reason: str | None) -> bool:
        record = self.seen(tenant, job_id)
        if record is None:
            raise Refused("JobNotFound")
        if record.state in {"completed", "dead"}:
            raise Refused("WrongState")
        if record.state == "cancelled":
            return False
        if record.state == "running":
            record.note("cancelled", self.now)
        record.state, record.reason, record.vanished = "cancelled", reason or "cancel", 0
        record.lease_until = None
        self._settle([record])
        return True

    def replay(self, tenant: str, job_id: str, *, fresh: bool, new_id: Callable[[], str]) -> Answer:
        record = self.by_id(job_id)
        if record is None or record.tenant != tenant:
            raise Refused("JobNotFound")
        if record.stripped:
            raise Refused("Gone")
        if record.state not in FINAL:
            return Answer(job_id, duplicate=True, state=record.state)
        if record.state == "completed" and not fresh:
            raise Refused("WrongState")
        asks = record.scope is not None or record.yielded
        if asks:
            self._expire_holder(record.key)
        holder = self.holder(record.key)
        if asks and holder is not None and holder is not record:
            holder.id = self.ids[holder.number] = holder.id or new_id()
            return Answer(holder.id, duplicate=True, state=holder.state)
        if asks and holder is None:
            self._yield_to_newcomer(record.key)
        self._go_round_again(record, fresh=fresh)
        return Answer(job_id)

    def _go_round_again(self, record: Record, *, fresh: bool) -> None:
        if record.state == "completed" and record.ended_at is not None:
            record.note("completed", record.ended_at)
        record.state, record.attempt, record.vanished, record.run_at = "queued", 0, 0, self.now
        record.reason = record.keep_until = record.expires_at = record.not_before = None
        record.generation += fresh
        record.yielded = record.lapsed = False

    def delete(self, tenant: str, job_id: str) -> bool:
        record = self.by_id(job_id)
        if record is None or record.tenant != tenant:
            return False
        self._forget(record)
        if record.successor is not None:
            self._follow([(record, record.successor)])
        return True

    def prune(self) -> tuple[int, int]:
        over = [r for r in self.records.values() if (r.keep_until or self.now + 1) <= self.now]
        words = [self._discard(record) for record in over]
        return words.count("deleted"), words.count("stripped")

    def sweep(self) -> int:
        over = [place for place, known in self.published.items() if self._is_over(known)]
        for place in over:
            del self.published[place]
        return len(over)

    def fold(self) -> int:
        notes = sum(self.unfolded.values())
        self.folded.update(self.unfolded)
        self.unfolded.clear()
        return notes
