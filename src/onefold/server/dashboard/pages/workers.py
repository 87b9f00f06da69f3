"""Workers: which are alive, and what they run. For the operator: they serve all tenants."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from onefold.model.checks import parted
from onefold.model.statistics import alive_workers
from onefold.server.dashboard.page import Page, PageRequest, PageTable

if TYPE_CHECKING:
    from onefold.model.job import Job

PAGES: Final = PageTable()

RUNNING: Final = 200
"""Running jobs that are listed, at most."""


def is_served(request: PageRequest, queue: str) -> bool:
    """True if a worker that is alive takes jobs of this queue; `queue` is its full name."""
    tenant, name = parted(queue)
    saved = (request.onefold.tenant(tenant) if tenant else request.onefold).queues.get(name)
    pushed = saved is not None and saved.endpoint is not None
    return any(one.takes_from(queue, pushed=pushed) for one in request.onefold.workers.find())


@PAGES.get("/workers")
def list_workers(request: PageRequest) -> Page:
    """All workers, with the jobs that they run."""
    if request.session.tenant:
        text = "Workers serve all tenants, so only the operator sees them."
        return Page("failure.html", {"title": "For the operator", "text": text}, 403)
    running: defaultdict[str, list[Job]] = defaultdict(list)
    for job in request.calls.find(state="running", newest_first=True, limit=RUNNING):
        running[job.worker or ""].append(job)
    workers = request.onefold.workers.find()
    values = {
        "workers": [(one, running.get(one.name, [])) for one in workers],
        "alive": alive_workers(workers),
    }
    return Page("workers.html", values)
