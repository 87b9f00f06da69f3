"""Reading jobs: get, find, paging; and the isolation of tenants."""

from typing import Any, Final

import pytest

from onefold.errors import InvalidInput, JobNotFound
from onefold.model.claim import Won
from onefold.model.job import JobPage, NewJob
from onefold_contract.cases.common import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    bury,
    complete,
    stored,
)
from onefold_contract.subject import Subject

__all__ = ["TestErase", "TestFind", "TestGet", "TestPaging", "TestTenants"]

NEVER_THERE: Final = "01890000-0000-7000-8000-000000000000"


def ids(page: JobPage) -> list[str]:
    """The ids of a page."""
    return [job.id for job in page]


class TestGet:
    """One job by its id."""

    def test_an_id_may_be_spelled_as_uuids_may(self, subject: Subject) -> None:
        assert subject.get(NEVER_THERE) is None
        answer = subject.enqueue("email")
        assert subject.existing_job(answer.id.upper()).id == answer.id

    def test_a_job_that_has_not_changed_equals_itself(self, subject: Subject) -> None:
        job_id = subject.enqueue("email", {"to": 42}, delay=HOUR).id
        first = subject.existing_job(job_id)
        subject.clock.advance(MINUTE)
        again = subject.existing_job(job_id)
        assert (first, hash(first)) == (again, hash(again))
        assert {first} == {*subject.find().jobs}
        subject.clock.advance(HOUR)
        subject.take_one()
        assert subject.existing_job(job_id) != first


class TestFind:
    """Filters; a job must match all of them."""

    def test_without_filters_everything_is_found_in_order(self, subject: Subject) -> None:
        made = [subject.enqueue("email").id for _ in range(3)]
        assert ids(subject.find()) == made
        assert ids(subject.find(newest_first=True)) == made[::-1]

    def test_by_state(self, subject: Subject) -> None:
        made: dict[str, str] = {}
        for state in ("running", "retrying", "completed", "dead", "cancelled"):
            made[state] = subject.enqueue("email", queue=state).id
        subject.take_one("running")
        subject.deliveries.retry([subject.take_one("retrying")], after=HOUR)
        complete(subject, "completed")
        bury(subject, "dead")
        subject.cancel(made["cancelled"])
        made["scheduled"] = subject.enqueue("email", delay=HOUR).id
        made["ready"] = subject.enqueue("email").id
        for state, job_id in made.items():
            assert ids(subject.find(state=state)) == [job_id], state
        queued = {made["retrying"], made["scheduled"], made["ready"]}
        assert set(ids(subject.find(state=["scheduled", "ready", "retrying"]))) == queued
        ended = subject.find(state=["completed", "dead", "cancelled"])
        assert set(ids(ended)) == {made["completed"], made["dead"], made["cancelled"]}

    def test_by_queue_kind_and_key(self, subject: Subject) -> None:
        email = subject.enqueue("email", queue="fast", unique_key="k")
        letter = subject.enqueue("letter", queue="slow", unique_key="k")
        assert ids(subject.find(queue="slow")) == [letter.id]
        assert ids(subject.find(kind="email")) == [email.id]
        assert ids(subject.find(unique_key="k")) == [email.id, letter.id]
        assert ids(subject.find(unique_key="k", kind="letter")) == [letter.id]
        assert ids(subject.find(kind="email", queue="slow")) == []

    def test_by_reason_and_type_of_error(self, subject: Subject) -> None:
        first = subject.enqueue("email")
        subject.deliveries.bury([subject.take_one()], reason="bounced", error=KeyError("x"))
        second = subject.enqueue("email", max_attempts=1)
        subject.deliveries.retry([subject.take_one()], error=ValueError("x"))
        assert ids(subject.find(reason="bounced")) == [first.id]
        assert ids(subject.find(reason="failed")) == [second.id]
        assert ids(subject.find(error_type="ValueError")) == [second.id]

    @pytest.mark.parametrize("which", ["created", "ended"])
    def test_by_time_half_open(self, subject: Subject, which: str) -> None:
        start = subject.clock.now
        made: list[str] = []
        for _ in range(3):
            made.append(subject.enqueue("email").id)
            bury(subject)
            subject.clock.advance(HOUR)
        waiting = subject.enqueue("email").id
        begin, end = f"{which}_from", f"{which}_before"
        between: dict[str, Any] = {begin: start + HOUR, end: start + 2 * HOUR}
        since: dict[str, Any] = {begin: start}
        until: dict[str, Any] = {end: start + HOUR}
        assert ids(subject.find(**between)) == [made[1]]
        assert ids(subject.find(**until)) == [made[0]]
        assert ids(subject.find(**since)) == [*made, *([waiting] if which == "created" else [])]

    @pytest.mark.parametrize("newest_first", [False, True])
    def test_by_id_or_its_first_digits_eight_or_more(
        self, subject: Subject, newest_first: Any
    ) -> None:
        made = [subject.enqueue("email", unique_key=f"k{n}").id for n in range(5)]
        made.sort(reverse=newest_first)
        for begin in (made[2][:8], made[2][:21], made[2][:35], made[2], made[2].replace("-", "")):
            digits = begin.replace("-", "")
            wanted = [one for one in made if one.replace("-", "").startswith(digits)]
            first = subject.find(id=begin, limit=2, newest_first=newest_first)
            rest = subject.find(id=begin.upper(), after=first.next, newest_first=newest_first)
            assert ids(first) + (ids(rest) if first.next else []) == wanted
            assert ids(subject.find(id=begin, kind="letter")) == []
        assert ids(subject.find(id="00000000")) == ids(subject.find(id="ffffffff")) == []
        for wrong in ("", "0198000", "0198000g", "-" * 8, "0" * 33, 1):
            with pytest.raises(InvalidInput, match="must be a UUID or its first 8 or more digits"):
                subject.find(id=wrong)  # type: ignore[arg-type] # a number, too

    @pytest.mark.parametrize("text", ["o-1042", "O-10", 'say "hi"', "Grüße", "note"])
    def test_by_text_in_the_payload(self, subject: Subject, text: str) -> None:
        payload = {"order": "o-1042", "note": 'say "hi"', "greeting": "grüße"}
        wanted = subject.enqueue("email", payload).id
        subject.enqueue("email", {"order": "o-2042"})
        subject.enqueue("letter", payload)
        assert ids(subject.find(text=text, kind="email")) == [wanted]


class TestPaging:
    """Cursors go through everything once, in both directions."""

    @pytest.mark.parametrize("newest_first", [False, True])
    @pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
    @pytest.mark.parametrize("text", [None, "ada"])
    def test_pages_together_are_every_match_once(
        self, subject: Subject, size: int, text: str | None, newest_first: Any
    ) -> None:
        jobs = [NewJob("email", {"to": "Ada" if n % 2 else "Bob"}) for n in range(7)]
        made = [answer.id for answer in subject.enqueue_many(jobs)]
        wanted = made if text is None else made[1::2]
        found: list[str] = []
        after = None
        while True:
            page = subject.find(text=text, limit=size, after=after, newest_first=newest_first)
            assert len(page) <= size
            found += ids(page)
            after = page.next
            if after is None:
                break
        assert found == (wanted[::-1] if newest_first else wanted)

    @pytest.mark.parametrize("newest_first", [False, True])
    @pytest.mark.parametrize("text", [None, "ada"])
    def test_a_page_has_at_most_four_mebibytes(
        self, subject: Subject, text: str | None, newest_first: Any
    ) -> None:
        large = NewJob("email", {"to": "Ada", "text": "é" * 500_000})
        jobs = [*[NewJob("email", {"to": "Ada"})] * 40, *[large] * 9]
        made = [answer.id for answer in subject.enqueue_many(jobs)]
        subject.take(limit=100)
        pages: list[list[str]] = []
        after = None
        while True:
            page = subject.find(
                state="running", text=text, limit=100, after=after, newest_first=newest_first
            )
            assert page.looked_to is None
            pages.append(ids(page))
            after = page.next
            if after is None:
                break
        assert [one for page in pages for one in page] == sorted(made, reverse=newest_first)
        assert list(map(len, pages)) == ([4, 4, 41] if newest_first else [44, 4, 1])

    def test_a_page_of_keys_has_at_most_four_mebibytes_of_results(self, subject: Subject) -> None:
        made = [f"{number:02}" for number in range(49)]
        for key in made:
            answer = subject.claim("import", key)
            assert isinstance(answer, Won)
            subject.keys.settle(answer.claim, "é" * 500_000 if key >= "40" else None)
        pages: list[list[str]] = []
        after = None
        while len(pages) == 0 or after is not None:
            page = subject.keys.find(limit=100, after=after, results=True)
            pages.append([key.key for key in page])
            after = page.next
        assert [one for page in pages for one in page] == made
        assert list(map(len, pages)) == [44, 4, 1]

    def test_a_search_for_a_text_looks_at_a_limited_number_of_jobs(self, subject: Subject) -> None:
        oldest = subject.enqueue("email", {"to": "Ada"}).id
        subject.enqueue_many([NewJob("email")] * 2000)
        page = subject.find(text="ada", newest_first=True)
        assert ids(page) == []
        assert ids(subject.find(text="ada", newest_first=True, after=page.next)) == [oldest]

    def test_a_look_by_a_filter_reads_a_limited_number_of_jobs(self, subject: Subject) -> None:
        oldest = subject.enqueue("letter").id
        subject.enqueue_many([NewJob("email")] * 10_000)
        page, looks = subject.find(kind="letter", newest_first=True), 1
        while page.next is not None:
            assert (ids(page), page.looked_to is None) == ([], False)
            page, looks = subject.find(kind="letter", newest_first=True, after=page.next), looks + 1
        assert (ids(page), page.looked_to, looks > 1) == ([oldest], None, True)

    def test_a_key_finds_its_jobs_however_many_have_ended(self, subject: Subject) -> None:
        made: list[str] = []
        for scope in ("active", "queued", "exists"):
            made.append(subject.enqueue(f"ended {scope}", unique_key="k", unique_while=scope).id)
            complete(subject)
            made.append(subject.enqueue(f"taken {scope}", unique_key="k", unique_while=scope).id)
            subject.take_one()
        for newest_first in (False, True):
            wanted = sorted(made, reverse=newest_first)
            assert ids(subject.find(unique_key="k", newest_first=newest_first)) == wanted

    def test_a_cursor_keeps_its_place_while_jobs_come(self, subject: Subject) -> None:
        made = [subject.enqueue("email").id for _ in range(4)]
        page = subject.find(limit=2)
        newest = subject.enqueue("email").id
        subject.delete(made[1])
        assert ids(subject.find(after=page.next)) == [made[2], made[3], newest]


class TestTenants:
    """A tenant neither sees nor changes the data of another tenant."""

    @pytest.mark.parametrize("other", ["", "umbrella"])
    def test_another_tenant_is_refused(self, subject: Subject, other: str) -> None:
        acme = subject.tenant("acme")
        stranger = subject.tenant(other) if other else subject
        dead = acme.enqueue("email").id
        bury(subject)
        parked = acme.enqueue("email", unique_key="k").id
        subject.deliveries.park(subject.take_one(), ack_timeout=MINUTE)
        before = [acme.existing_job(dead), acme.existing_job(parked)]
        for job_id in (dead, parked):
            assert stranger.get(job_id) is None
            for call in (
                stranger.cancel,
                stranger.replay,
                stranger.run_now,
                stranger.keys.duplicates,
                stranger.deliveries.attempts,
                stranger.deliveries.acknowledge,
                stranger.deliveries.nack,
                stranger.deliveries.heartbeat_job,
            ):
                with pytest.raises(JobNotFound):
                    call(job_id)
            assert stranger.delete(job_id) is False
        assert ids(stranger.find()) == []
        assert (len(stranger.dead.replay()), stranger.dead.delete()) == (0, 0)
        assert [acme.existing_job(dead), acme.existing_job(parked)] == before
        assert acme.dead.replay().inserted == 1


class TestErase:
    """Stored payloads and results are customer data: erase deletes them, with their keys."""

    def test_a_tenant_is_forgotten_and_nobody_else(self, subject: Subject) -> None:
        acme, umbrella = subject.tenant("acme"), subject.tenant("umbrella")
        for owner in (acme, umbrella, subject):
            owner.enqueue("email", {"secret": 1}, unique_key="k", idempotency_key="K")
            owner.enqueue("email", {"secret": 2})
        with pytest.raises(InvalidInput) as caught:
            umbrella.keys.erase(tenant="acme")
        assert (caught.value.field, stored(acme)) == ("tenant", 2)
        erased = subject.keys.erase(tenant="acme")
        assert (erased.jobs, erased.claims) == (2, 1)
        assert stored(acme) == 0
        assert stored(umbrella) == stored(subject) == 2
        assert acme.enqueue("email", unique_key="k", idempotency_key="K").inserted
        assert umbrella.enqueue("email", {"secret": 1}, idempotency_key="K").duplicate

    def test_a_key_is_forgotten_with_all_that_it_names(self, subject: Subject) -> None:
        held = subject.enqueue("email", unique_key="user:1")
        published = subject.enqueue("email", idempotency_key="user:1")
        other = subject.enqueue("email", unique_key="user:2")
        erased = subject.keys.erase(key="user:1")
        assert (erased.jobs, erased.claims) == (2, 1)
        assert subject.get(held.id) is None
        assert subject.get(published.id) is None
        assert subject.get(other.id) is not None
        assert subject.enqueue("email", unique_key="user:1").inserted
        assert subject.enqueue("email", idempotency_key="user:1").inserted

    def test_tombstones_and_counts_go_too(self, subject: Subject) -> None:
        subject.enqueue("email", unique_key="k", unique_for=2 * DAY)
        subject.enqueue("email", unique_key="k")
        complete(subject)
        subject.clock.advance(DAY + SECOND)
        subject.deliveries.prune()
        assert subject.keys.erase(key="k").jobs == 1
        again = subject.enqueue("email", unique_key="k")
        assert again.inserted
        assert subject.keys.duplicates(again.id).count == 0
