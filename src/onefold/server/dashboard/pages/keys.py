"""Keys of all surfaces: what holds a key, what it has suppressed, and release, settle."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from onefold.effects.claims import KEEPERS
from onefold.errors import InvalidInput
from onefold.model.stored_key import HELD, JOB, KEY_STATES, KeyPage, after, cursor
from onefold.operations.stored_keys import HIDDEN
from onefold.server.dashboard.page import Page, PageRequest, PageTable, Redirect
from onefold.server.routes.keys import shown_holder, shown_key, stored_scope
from onefold.web.idempotency.stored_response import ANSWERED, operator_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onefold.model.stored_key import KeyHolder, StoredKey

PAGES: Final = PageTable()

PAGE: Final = 50
FILTERS: Final = ("surface", "scope", "key", "state")
SURFACES: Final = ("http", "webhook", "form", "once", "publish", "job", "lock", "step")
DETAIL: Final = "/keys/detail"
NO_STATUS: Final = "The key was free, or it does not exist. Nothing was changed."


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key in the list."""

    surface: str
    scope: str
    key: str
    state: str
    since: datetime
    until: datetime | None
    url: str


class KeyEvent(msgspec.Struct, frozen=True):
    """Something in the life of a key."""

    at: datetime
    name: str
    text: str
    request_id: str | None = None


@PAGES.get("/keys")
def list_keys(request: PageRequest) -> Page:
    """A page of keys, by surface, scope and key; with a key, also the jobs that hold it."""
    filters = {name: request.query.get(name) for name in FILTERS}
    problem: str | None = None
    rows: list[KeyRow] = []
    following = None
    try:
        found = _find(request, filters)
        rows = [*_jobs(request, filters), *(_row(request, key) for key in found)]
        following = found.next and request.url("/keys", **filters, after=found.next)
    except InvalidInput as error:
        problem = str(error)
    values = {
        "keys": rows,
        "filters": filters,
        "filtered": any(filters.values()),
        "states": KEY_STATES,
        "surfaces": SURFACES,
        "problem": problem,
        "next": following,
        "first": request.url("/keys", **filters) if "after" in request.query else None,
    }
    return Page("keys.html", values, 400 if problem else 200)


def _find(request: PageRequest, filters: dict[str, str | None]) -> KeyPage:
    """Keys of requests. Unique keys are stored with their jobs: `why` finds those."""
    surface, tenant = filters["surface"], request.session.tenant
    if surface == JOB:
        if filters["key"] is None:
            raise InvalidInput("key", "is needed to find unique keys of jobs: fill in both")
        return KeyPage(())
    options: Any = {**filters, "scope": stored_scope(tenant, surface, filters["scope"])}
    page = request.calls.keys.find(limit=PAGE, after=request.query.get("after"), **options)
    return msgspec.structs.replace(page, keys=tuple(shown_key(tenant, key) for key in page))


def _jobs(request: PageRequest, filters: dict[str, str | None]) -> Iterator[KeyRow]:
    """The jobs that hold a key by their unique keys."""
    key, surface = filters["key"], filters["surface"]
    if key is None or surface not in {None, JOB} or filters["state"] or "after" in request.query:
        return
    for holder in request.calls.keys.why(key, surface=JOB, scope=filters["scope"]):
        yield KeyRow(
            surface=JOB,
            scope=holder.scope,
            key=key,
            state=holder.state,
            since=holder.since,
            until=holder.until,
            url=_url(request, JOB, holder.scope, key),
        )


def _row(request: PageRequest, key: StoredKey) -> KeyRow:
    return KeyRow(
        surface=key.surface,
        scope=key.scope,
        key=key.key,
        state=key.state,
        since=key.since,
        until=key.lease_until if key.state == "held" else key.expires_at,
        url=_url(request, key.surface, key.scope, key.key),
    )


def _url(request: PageRequest, surface: str, scope: str, key: str) -> str:
    return request.url(DETAIL) + "?" + _query(surface, scope, key)


@PAGES.get(DETAIL)
def show_key(request: PageRequest) -> Page:
    """One key: what holds it, since when and why, and what it has suppressed."""
    given = request.given
    surface, scope, key = (given.get(name, "") for name in ("surface", "scope", "key"))
    tenant, calls = request.session.tenant, request.calls
    stored = stored_scope(tenant, surface, scope) or ""
    holder = next(iter(calls.keys.why(key, surface=surface, scope=stored)), None)
    kept = None
    if surface != JOB:
        shows_result = request.session.role == "admin"
        page = calls.keys.find(surface=surface, scope=stored, key=key, results=shows_result)
        kept = next(iter(page), None)
    known = holder or kept
    values = {
        "surface": surface,
        "scope": scope,
        "key": key,
        # As JSON: browsers change line feeds in the fields of a form.
        "place": cursor((surface, scope, key)),
        "back": f"{DETAIL}?{_query(surface, scope, key)}",
        "state": "free" if known is None else known.state,
        "holder": holder and shown_holder(tenant, holder),
        "kept": kept,
        "result": kept.result if kept is not None and surface != "publish" else None,
        "held": HELD,
        "events": _events(holder, kept),
        "can_release": holder is not None and surface not in {JOB, *HIDDEN},
        "can_settle": holder is not None and surface not in {JOB, *HIDDEN, *KEEPERS},
        "answers": surface in ANSWERED,
    }
    return Page("key.html", values)


def _events(holder: KeyHolder | None, kept: StoredKey | None) -> list[KeyEvent]:
    """The life of a key, the newest first."""
    events: list[KeyEvent] = []
    if known := holder or kept:
        events.append(KeyEvent(known.since, "claimed", "The key was claimed."))
    if kept is not None and kept.settled_at is not None:
        events.append(KeyEvent(kept.settled_at, "settled", "The result was stored."))
    for one in holder.suppressed.recent[::-1] if holder else ():
        text = "A duplicate was suppressed."
        events.append(KeyEvent(one.at, "suppressed", text, one.request_id))
    return sorted(events, key=lambda event: event.at)[::-1]


@PAGES.action("/keys/release")
def release_key(request: PageRequest) -> Redirect:
    """Free a key, also if an attempt holds it."""
    surface, scope, key = after(request.form.get("place", ""))
    if surface in {JOB, *HIDDEN}:
        raise InvalidInput("surface", f"{surface!r} can only be read")
    stored = stored_scope(request.session.tenant, surface, scope) or ""
    done = request.calls.keys.force_release(stored, key, surface=surface)
    notice = "The key is released: the next request with it runs." if done else NO_STATUS
    return _back(surface, scope, key, notice, done=done)


@PAGES.action("/keys/settle")
def settle_key(request: PageRequest) -> Redirect:
    """Mark a key as done with a result, also if an attempt holds it."""
    surface, scope, key = after(request.form.get("place", ""))
    result = _settlement(request.form, surface)
    done = request.calls.keys.force_settle(scope, key, result, surface=surface)
    notice = "The key is settled: each request with it receives this result." if done else NO_STATUS
    return _back(surface, scope, key, notice, done=done)


def _settlement(form: dict[str, str], surface: str) -> Any:
    if surface not in ANSWERED:
        try:
            return json.loads(form.get("result", "").strip() or "null")
        except (ValueError, RecursionError):
            raise InvalidInput("result", "must be JSON, such as null or a text in quotes") from None
    status = form.get("status", "")
    if not re.fullmatch("[2-5][0-9]{2}", status):
        raise InvalidInput("status", "must be a number from 200 to 599")
    return operator_result(surface, None, status=int(status), body=form.get("body", ""))


def _back(surface: str, scope: str, key: str, notice: str, *, done: bool) -> Redirect:
    return Redirect(f"{DETAIL}?{_query(surface, scope, key)}", notice, failed=not done)


def _query(surface: str, scope: str, key: str) -> str:
    return urlencode({"surface": surface, "scope": scope, "key": key})
