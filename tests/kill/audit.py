"""The books, once everything has ended: what was promised, counted in the tables and the ledger."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tests.fixtures.place import Place
from tests.kill.jobs import AT_LEAST_ONCE, EXACT, STEPS
from tests.kill.ledger import Ledger

STATES = ["queued", "running", "completed", "dead", "cancelled"]
JOBS = "select cast(id as text), kind, state, attempt, fence, reason from {job}"
ATTEMPTS = "select cast(job_id as text), fence, attempt, outcome from {attempt} order by fence"
STEP_ROWS = "select scope, key, state, result from {claim} where surface = 'step'"


class Stored(NamedTuple):
    """A job as it stands."""

    id: str
    kind: str
    state: int
    attempt: int
    fence: int
    reason: str | None


def install(place: Place) -> None:
    """The table of effects: no constraint keeps anything out, so that it is seen."""
    with place.connection() as connection:
        connection.execute(f"create table {place.effects} (job_id text, fence bigint)")


def jobs(place: Place) -> list[Stored]:
    """All that are stored."""
    return [Stored(*row) for row in place.rows(JOBS)]


def unfinished(place: Place) -> int:
    """How many jobs wait or run."""
    ((count,),) = place.rows("select count(*) from {job} where state in (0, 1)")
    return int(count)


def check(place: Place, ledger: Ledger, enqueued: Iterable[str]) -> None:
    """Everything that was promised of these jobs; nothing else is stored."""
    stored = jobs(place)
    ended = Counter((STATES[job.state], job.reason) for job in stored)
    assert ended == {("completed", None): len(stored)}, ended
    assert sorted(job.id for job in stored) == sorted(enqueued)
    check_transactions(place, stored)
    check_steps(place, ledger, stored)
    check_pings(ledger, stored)
    check_history(place, stored)


def check_transactions(place: Place, stored: list[Stored]) -> None:
    """One row for each job, by the very delivery that completed it."""
    rows = place.rows("select job_id, fence from {effects}", effects=place.effects)
    assert sorted(rows) == sorted((job.id, job.fence) for job in stored if job.kind in EXACT)


def check_steps(place: Place, ledger: Ledger, stored: list[Stored]) -> None:
    """One settled record for each step, of a value that its body gave; nobody saw another."""
    settled: dict[tuple[str, str], str] = {}
    for job_id, key, state, result in place.rows(STEP_ROWS):
        assert state == 1, f"the step {key} of {job_id} is not settled"
        name = key.removeprefix("0:").removesuffix("#1")
        settled[job_id, name] = msgspec.json.decode(result)["value"]
    wanted = {(job.id, name) for job in stored for name in STEPS.get(job.kind, ())}
    assert set(settled) == wanted
    for name in {name for _, name in wanted}:
        done, saw = ledger.by_job(name), ledger.by_job(f"saw-{name}")
        for job_id in (job_id for job_id, step in wanted if step == name):
            value = settled[job_id, name]
            assert value in {line.value for line in done[job_id]}
            assert {line.value for line in saw[job_id]} <= {value}


def check_pings(ledger: Ledger, stored: list[Stored]) -> None:
    """At least once, and never more often than the job was delivered."""
    pinged = ledger.by_job("ping")
    for job in stored:
        if job.kind in AT_LEAST_ONCE:
            fences = [line.fence for line in pinged[job.id]]
            assert fences
            assert len(set(fences)) == len(fences) <= job.fence


def check_history(place: Place, stored: list[Stored]) -> None:
    """Every delivery has ended once, none twice, and those before the last one by a lost lease."""
    noted: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for job_id, *attempt in place.rows(ATTEMPTS):
        noted[job_id].append((attempt[0], attempt[1], attempt[2]))
    for job in stored:
        before = [attempt for attempt in noted[job.id] if attempt[0] < job.fence]
        outcomes = {outcome for _, _, outcome in before}
        assert outcomes <= {"lease expired", "retried", "deferred"}, before
        # Charged at the take: each delivery is one attempt more, unless it was deferred.
        charged = [number for _, number, outcome in before if outcome != "deferred"]
        assert charged == list(range(1, job.attempt)), before
        assert all(fence <= job.fence for fence, _, _ in noted[job.id])
