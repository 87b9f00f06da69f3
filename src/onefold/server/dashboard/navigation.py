"""All pages, and the navigation: a new module of pages is added here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.server.dashboard.page import NavigationItem
from onefold.server.dashboard.pages import (
    api_keys,
    dead,
    jobs,
    keys,
    overview,
    queues,
    schedules,
    visits,
    workers,
)

if TYPE_CHECKING:
    from onefold.server.dashboard.page import PageRoute

PAGES: Final[list[PageRoute]] = [
    *visits.PAGES,
    *overview.PAGES,
    *queues.PAGES,
    *jobs.PAGES,
    *keys.PAGES,
    *dead.PAGES,
    *schedules.PAGES,
    *workers.PAGES,
    *api_keys.PAGES,
]

NAVIGATION: Final = (
    NavigationItem("Overview", "/", "overview"),
    NavigationItem("Queues", "/queues", "queues"),
    NavigationItem("Jobs", "/jobs", "jobs"),
    NavigationItem("Keys", "/keys", "keys"),
    NavigationItem("Dead letters", "/dead", "dead"),
    NavigationItem("Schedules", "/schedules", "schedules"),
    NavigationItem("Workers", "/workers", "workers", for_operator=True),
    NavigationItem("API keys", "/api-keys", "apikeys"),
)
