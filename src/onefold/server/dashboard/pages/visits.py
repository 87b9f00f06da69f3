"""Log in and out, choose a tenant, and the search."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlencode

from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.server.dashboard.page import Page, PageRequest, PageTable, Redirect, own_path
from onefold.server.dashboard.pages.jobs import STATES, find_jobs

PAGES: Final = PageTable()

JOB_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
SEARCHED: Final = ("id", "key", "kind", "queue", "tag")
"""Where a search looks for a text, in this order."""


@PAGES.get("/login", needs="nothing")
def show_login(request: PageRequest) -> Page | Redirect:
    """The form for an API key."""
    if request.dashboard.sessions.find(request.incoming) is not None:
        return Redirect(_next(request.query))
    return Page("login.html", {"next": _next(request.query), "refused": False})


@PAGES.action("/login", needs="nothing")
def log_in(request: PageRequest) -> Page | Redirect:
    """Begin a session."""
    sessions = request.dashboard.sessions
    session = sessions.log_in(request.form.get("key", ""))
    if session is None:
        return Page("login.html", {"next": _next(request.form), "refused": True}, status=403)
    return Redirect(_next(request.form), cookie=sessions.cookie(session))


@PAGES.action("/logout", needs="read")
def log_out(request: PageRequest) -> Redirect:
    """End the session of this browser."""
    del request
    return Redirect("/login", cookie="", tenant="")


# Without a form key, as the login: it only chooses what the operator sees.
@PAGES.action("/tenant", needs="nothing")
def choose_tenant(request: PageRequest) -> Redirect:
    """Show the operator the pages of a tenant, or again its own."""
    tenant = request.form.get("tenant", "").strip()
    return Redirect("/", tenant=tenant and checks.tenant(tenant, "tenant"))


@PAGES.get("/search")
def search(request: PageRequest) -> Redirect:
    """The page for a text: jobs by id, key, kind, queue or tag, else keys of other surfaces."""
    text = request.query.get("q", "")
    name, colon, value = text.partition(":")
    if colon and name == "key":
        return _found(request, value.strip(), ("key",))
    if colon and name in {*SEARCHED, "state", "text"}:
        return _jobs(name, value.strip())
    if text in STATES:
        return _jobs("state", text)
    return _found(request, text, SEARCHED)


def _found(request: PageRequest, text: str, places: tuple[str, ...]) -> Redirect:
    unfinished: list[str] = []
    for name in places if text else ():
        try:
            found = find_jobs(request, {name: text}, limit=1)
        except InvalidInput:
            continue
        if found.jobs:
            return _job(text) if name == "id" and JOB_ID.fullmatch(text) else _jobs(name, text)
        if found.next:
            unfinished.append(name)
    if text and _is_key(request, text):
        return Redirect(f"/keys?{urlencode({'key': text})}")
    # The page of a look that has not reached the oldest job offers to look further back.
    return _job(text) if JOB_ID.fullmatch(text) else _jobs(next(iter(unfinished), "key"), text)


def _is_key(request: PageRequest, text: str) -> bool:
    try:
        return bool(request.calls.keys.find(key=text, limit=1))
    except InvalidInput:
        return False


def _job(job_id: str) -> Redirect:
    return Redirect(f"/jobs/{job_id.lower()}")


def _jobs(name: str, value: str) -> Redirect:
    return Redirect(f"/jobs?{urlencode({name: value})}" if value else "/jobs")


def _next(values: dict[str, str]) -> str:
    """Where a visitor wanted to go; only a path of this dashboard."""
    return own_path(values.get("next", "/"))
