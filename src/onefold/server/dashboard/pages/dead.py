"""Dead letters: a list by filter; replay or drop one, some, or all that match."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

from onefold.errors import InvalidInput
from onefold.model.checks import qualified
from onefold.model.ids import parse_id
from onefold.model.job import JobPage
from onefold.operations import jobs
from onefold.server.dashboard.page import Page, PageRequest, PageTable, Redirect, own_path
from onefold.server.dashboard.pages.jobs import of_tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onefold.operations.statement import Operation, Sql

    Change: TypeAlias = Callable[[str, Sequence[str], Sql], Operation[int]]

PAGES: Final = PageTable()

PAGE: Final = 50
BATCH: Final = 200
"""Dead letters per request: the page shows progress in between."""
FILTERS: Final = ("queue", "kind", "reason", "error_type", "from", "before")
_COUNT: Final = re.compile(r"[0-9]{1,12}")
REASONS: Final = ("failed", "poison", "expired", "ack timeout")


@PAGES.get("/dead")
def list_dead(request: PageRequest) -> Page:
    """A page of dead letters, the newest first."""
    filters = {name: request.query.get(name) for name in FILTERS}
    problem: str | None = None
    try:
        options = _options(request, filters)
        after = request.query.get("after")
        found = request.calls.dead.find(limit=PAGE, after=after, newest_first=True, **options)
    except InvalidInput as error:
        problem, found = str(error), JobPage(())
    values = {
        "jobs": [of_tenant(job) for job in found],
        "filters": filters,
        "given": {name: value for name, value in filters.items() if value},
        "reasons": REASONS,
        "error_types": sorted({str(job.error.get("type", "")) for job in found if job.error}),
        "problem": problem,
        "back": _list(filters),
        "looked_to": found.looked_to,
        "next": found.next and request.url("/dead", **filters, after=found.next),
        "first": request.url("/dead", **filters) if "after" in request.query else None,
    }
    return Page("dead.html", values, 400 if problem else 200)


@PAGES.action("/dead/replay")
def replay_selected(request: PageRequest) -> Redirect:
    """Queue the dead letters again that are ticked."""
    return _change_selected(request, _replay, "queued again")


@PAGES.action("/dead/drop")
def drop_selected(request: PageRequest) -> Redirect:
    """Remove the dead letters that are ticked."""
    return _change_selected(request, _drop, "dropped")


def _change_selected(request: PageRequest, change: Change, done: str) -> Redirect:
    ids = list(dict.fromkeys(map(parse_id, request.values("id"))))
    where = own_path(request.form.get("back", "/dead"))
    if not ids:
        return Redirect(where, "Select one or more dead letters first.", failed=True)
    store, tenant = request.calls.context.store, request.session.tenant
    changed = store.transact(partial(change, tenant, ids))
    notice = f"{_letters(changed)} {done}."
    if rest := len(ids) - changed:
        notice += f" {_letters(rest)} stayed: replayed before, or a newer job holds the key."
    return Redirect(where, notice, failed=not changed)


def _replay(tenant: str, ids: Sequence[str], sql: Sql) -> Operation[int]:
    answers = yield from jobs.replay(sql, tenant, ids, strict=False)
    return sum(not answer.duplicate for answer in answers)


def _drop(tenant: str, ids: Sequence[str], sql: Sql) -> Operation[int]:
    """Remove those that are still dead: one that was replayed meanwhile stays."""
    found = yield from jobs.get(sql, tenant, ids)
    dead = {job_id: job for job_id, job in found.items() if job.state == "dead"}
    return len((yield from jobs.delete(sql, tenant, list(dead), seen=dead)))


@PAGES.action("/dead/all")
def change_all(request: PageRequest) -> Page:
    """Replay or drop a batch of the dead letters that match, and say how many are done.

    The page has the form of the next batch. A script submits it; without scripts, a click does.
    """
    filters = {name: request.form.get(name) or None for name in FILTERS}
    done, skipped = (_count(request.form.get(name, "")) for name in ("done", "skipped"))
    options, dead = _options(request, filters), request.calls.dead
    drops = request.form.get("do") == "drop"
    following: str | None = None
    if drops:
        deleted = dead.delete(limit=BATCH, **options)
        done += deleted
        is_over = deleted < BATCH
    else:
        after = request.form.get("after") or None
        many = dead.replay(limit=BATCH, after=after, **options)
        done, skipped, following = done + many.inserted, skipped + many.skipped, many.next
        is_over = following is None
    fields = {
        **{name: value for name, value in filters.items() if value},
        "do": "drop" if drops else "replay",
        "done": str(done),
        "skipped": str(skipped),
        "after": following or "",
    }
    values = {
        "drops": drops,
        "done": done,
        "skipped": skipped,
        "is_over": is_over,
        "fields": fields,
        "back": _list(filters),
    }
    return Page("dead_progress.html", values)


def _options(request: PageRequest, filters: Mapping[str, str | None]) -> dict[str, Any]:
    """The filters of the page as options of `dead.find`."""
    queue = filters["queue"]
    return {
        "queue": queue and qualified(request.session.tenant, queue),
        "kind": filters["kind"],
        "reason": filters["reason"],
        "error_type": filters["error_type"],
        "ended_from": _moment(filters["from"], "from"),
        "ended_before": _moment(filters["before"], "before"),
    }


def _moment(text: str | None, name: str) -> datetime | None:
    """A time in UTC, as a browser sends it."""
    if text is None:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(name, f"must be a time such as 2026-01-31T12:00, got {text!r}") from None
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)


def _list(filters: Mapping[str, str | None]) -> str:
    given = {name: value for name, value in filters.items() if value}
    return f"/dead?{urlencode(given)}" if given else "/dead"


def _count(text: str) -> int:
    return int(text) if _COUNT.fullmatch(text) else 0


def _letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count} dead letters"
