"""Jobs: a list by filter, one job with its deliveries, and cancel, replay, run now."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from onefold.errors import InvalidInput, JobNotFound
from onefold.model.checks import qualified, shown
from onefold.model.ids import parse_id
from onefold.model.job import JobPage, JobState
from onefold.operations.steps import find_page
from onefold.server.dashboard.page import Page, PageRequest, PageTable, Redirect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onefold.model.job import Job

PAGES: Final = PageTable()

STATES: Final[tuple[str, ...]] = get_args(JobState)
PAGE: Final = 50
FILTERS: Final = ("state", "kind", "queue", "key", "tag", "text", "id")
CANCELLABLE: Final = frozenset({"scheduled", "ready", "retrying", "running", "awaiting"})
REPLAYABLE: Final = frozenset({"dead", "cancelled", "completed"})
WAITING: Final = frozenset({"scheduled", "retrying"})


@PAGES.get("/jobs")
def list_jobs(request: PageRequest) -> Page:
    """A page of jobs, the newest first."""
    filters = {name: request.query.get(name) for name in FILTERS}
    problem: str | None = None
    try:
        found = find_jobs(request, filters)
    except InvalidInput as error:
        problem, found = str(error), JobPage(())
    values = {
        "jobs": [of_tenant(job) for job in found],
        "filters": filters,
        "filtered": any(filters.values()),
        "states": STATES,
        "problem": problem,
        "looked_to": found.looked_to,
        "next": found.next and request.url("/jobs", **filters, after=found.next),
        "first": request.url("/jobs", **filters) if "after" in request.query else None,
    }
    return Page("jobs.html", values, 400 if problem else 200)


def find_jobs(
    request: PageRequest, filters: Mapping[str, str | None], *, limit: int = PAGE
) -> JobPage:
    """A page of the jobs that match all filters."""
    options: dict[str, Any] = {
        name: filters.get(name) for name in ("state", "kind", "tag", "text", "id")
    }
    if queue := filters.get("queue"):
        options["queue"] = qualified(request.session.tenant, queue)
    return request.calls.find(
        limit=limit,
        after=request.query.get("after"),
        newest_first=True,
        unique_key=filters.get("key"),
        **options,
    )


@PAGES.get("/jobs/{id}")
def show_job(request: PageRequest) -> Page:
    """One job: payload, deliveries, steps, suppressed duplicates."""
    job_id = _id(request)
    job = request.calls.get(job_id)
    if job is None:
        raise JobNotFound(job_id)
    context, after = request.calls.context, request.query.get("after")
    look = partial(find_page, job_id=job_id, tenant=context.tenant, after=after)
    steps = context.store.transact(look, write=False)
    values = {
        "job": of_tenant(job),
        "attempts": request.calls.deliveries.attempts(job_id)[::-1],
        "steps": steps.items,
        "first": after and request.url(f"/jobs/{job_id}"),
        "next": steps.next and request.url(f"/jobs/{job_id}", after=steps.next),
        "duplicates": request.calls.keys.duplicates(job_id),
        "waiting": request.calls.deliveries.why(job_id),
        "can_cancel": job.state in CANCELLABLE,
        "can_replay": job.state in REPLAYABLE,
        "can_run_now": job.state in WAITING,
    }
    return Page("job.html", values)


@PAGES.action("/jobs/{id}/cancel")
def cancel_job(request: PageRequest) -> Redirect:
    """Stop a queued or running job."""
    job_id = _id(request)
    changed = request.calls.cancel(job_id, reason="cancelled in the dashboard")
    notice = "The job is cancelled." if changed else "The job was cancelled before."
    return Redirect(f"/jobs/{job_id}", notice)


@PAGES.action("/jobs/{id}/replay")
def replay_job(request: PageRequest) -> Redirect:
    """Run an ended job again; a completed one from its first step."""
    job_id = _id(request)
    answer = request.calls.replay(job_id, fresh="fresh" in request.form)
    if answer.id != job_id:
        notice = "Nothing was changed: a newer job, shown here, holds the key."
        return Redirect(f"/jobs/{answer.id}", notice, failed=True)
    notice = "The job was queued before." if answer.duplicate else "The job is queued again."
    return Redirect(f"/jobs/{job_id}", notice)


@PAGES.action("/jobs/{id}/run-now")
def run_job_now(request: PageRequest) -> Redirect:
    """Make a job due that is scheduled, or that waits after a failure."""
    job_id = _id(request)
    changed = request.calls.run_now(job_id)
    return Redirect(f"/jobs/{job_id}", "The job is due now." if changed else "The job was due.")


def _id(request: PageRequest) -> str:
    given = request.path["id"]
    try:
        return parse_id(given)
    except InvalidInput as error:
        raise JobNotFound(given[:100]) from error


def of_tenant(job: Job) -> Job:
    """The job with the name of its queue as its tenant knows it."""
    return msgspec.structs.replace(job, queue=shown(job.tenant, job.queue))
