"""All pages, and the navigation: a new module of pages is added here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.server.dashboard.page import NavigationItem
from onefold.server.dashboard.pages import jobs, visits

if TYPE_CHECKING:
    from onefold.server.dashboard.page import PageRoute

PAGES: Final[list[PageRoute]] = [*visits.PAGES, *jobs.PAGES]

NAVIGATION: Final = (NavigationItem("Jobs", "/jobs", "jobs"),)
"""In this order: Overview, Queues, Jobs, Keys, Dead letters, Schedules, Workers, API keys."""
