"""Queues: numbers, limits and the health of endpoints; pause, resume, make, edit, delete."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from onefold.errors import InvalidInput, QueueNotFound
from onefold.model import checks
from onefold.model.checks import parted, qualified, shown
from onefold.model.limit import Limit
from onefold.model.queue import HELD, MODES, FailingCounts, Queue, QueueCounts, QueueSettings
from onefold.push.address import AddressPolicy, endpoint
from onefold.server.dashboard.page import Page, PageRequest, PageTable, Redirect
from onefold.server.dashboard.pages.workers import is_served

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onefold.app.queues import Queues
    from onefold.model.job import Job

PAGES: Final = PageTable()

PUSHED: Final = 20
"""Jobs among which the last push is looked for."""
FIELDS: Final = ("endpoint", "mode", "max_attempts", "ack_timeout", "concurrency", "rate_limit")
"""Of the form. The other settings stay as they are."""


class QueueView(msgspec.Struct, frozen=True):
    """A queue as a page shows it."""

    name: str
    """As the visitor knows it."""
    queue: Queue
    failing: FailingCounts
    can_pause: bool

    @property
    def counts(self) -> QueueCounts:
        """How many jobs it has."""
        return self.queue.counts or QueueCounts()

    @property
    def states(self) -> tuple[str, ...]:
        """Why it gives no jobs; else `open`."""
        held = ("held",) if self.queue.held_until else ()
        return (("paused",) if self.queue.paused else ()) + held or ("open",)

    @property
    def held_why(self) -> str:
        """The reason of the hold."""
        return HELD[self.queue.held_why] if self.queue.held_why else ""

    @property
    def path(self) -> str:
        """Of its page, without the root."""
        return f"/queues/{quote(self.name, safe='')}"

    @property
    def is_saved(self) -> bool:
        """True if it has settings that can be edited."""
        return self.queue.created_at is not None


@PAGES.get("/queues")
def list_queues(request: PageRequest) -> Page:
    """All queues, by name."""
    failing = request.calls.queues.count_failing()
    # A queue may have dead jobs only.
    found = {name: Queue(tenant=parted(name)[0], name=parted(name)[1]) for name in failing}
    found |= {one.full_name: one for one in request.calls.queues.find()}
    views = [_view(request, one, failing) for _, one in sorted(found.items())]
    return Page("queues.html", {"queues": views})


@PAGES.get("/queues/{name}")
def show_queue(request: PageRequest) -> Page:
    """One queue: numbers, endpoint, limits, settings."""
    queue = _found(request)
    return _page(request, queue, _limits_of(queue), {})


@PAGES.get("/new-queue", needs="admin")
def show_new_queue(request: PageRequest) -> Page:
    """The form for a new queue."""
    del request
    return _form(None, {"name": "", **_fields_of(QueueSettings())}, {})


@PAGES.action("/new-queue")
def make_queue(request: PageRequest) -> Page | Redirect:
    """Save a new queue."""
    name = request.form.get("name", "").strip()

    def save() -> None:
        checks.name(name, "name")
        request.calls.queues.save(name, _settings(request, QueueSettings()), new=True)

    problems = _problems(request, save)
    if problems:
        return _form(None, request.form, problems, status=422)
    return Redirect(f"/queues/{quote(name, safe='')}", f"The queue {name} is saved.")


@PAGES.get("/queues/{name}/edit", needs="admin")
def show_settings(request: PageRequest) -> Page:
    """The form with the settings of a queue."""
    queue = _saved(request)
    return _form(request.path["name"], _fields_of(queue), {})


@PAGES.action("/queues/{name}/edit")
def edit_queue(request: PageRequest) -> Page | Redirect:
    """Change the settings of a queue."""
    before = _saved(request)
    queues, name = _owner(request)
    problems = _problems(request, lambda: queues.save(name, _settings(request, before)))
    if problems:
        return _form(request.path["name"], request.form, problems, status=422)
    return _done(request, "The settings are saved.")


@PAGES.action("/queues/{name}/pause")
def pause_queue(request: PageRequest) -> Redirect:
    """Give no more jobs of a queue to workers and endpoints."""
    _check_saved(request, request.calls.queues.pause(request.path["name"]))
    return _done(request, "The queue is paused. Running jobs continue.")


@PAGES.action("/queues/{name}/resume")
def resume_queue(request: PageRequest) -> Redirect:
    """Give jobs again."""
    _check_saved(request, request.calls.queues.resume(request.path["name"]))
    return _done(request, "The queue is resumed.")


def _check_saved(request: PageRequest, changed: Queue | None) -> None:
    """Nothing was changed if a tenant has named a queue that is not saved."""
    if changed is None and request.session.tenant:
        raise QueueNotFound(request.path["name"])


@PAGES.action("/queues/{name}/end-hold")
def end_hold(request: PageRequest) -> Redirect:
    """Push again now, and forget the failures."""
    ended = request.calls.queues.end_hold(request.path["name"], force=True)
    notice = "The hold is ended: jobs start again." if ended else "The queue was not held."
    return _done(request, notice)


@PAGES.action("/queues/{name}/limits")
def set_limits(request: PageRequest) -> Page | Redirect:
    """Set the limits of a queue that the code declares; those of its groups stay."""
    queue = _found(request)
    name = request.path["name"]

    def save() -> None:
        concurrency, rate = _number(request, "concurrency"), request.form["rate_limit"].strip()
        limit = Limit(concurrency=concurrency, rate=rate or None) if concurrency or rate else None
        request.calls.queues.set_limits(
            name, limit=limit, group_limit=queue.group_limit, ordered=queue.ordered
        )

    problems = _problems(request, save)
    if not problems:
        return _done(request, "The limits are set.")
    return _page(request, queue, request.form, problems, status=422)


@PAGES.action("/queues/{name}/clear-limits")
def clear_limits(request: PageRequest) -> Redirect:
    """Let the limits of the code apply again."""
    request.calls.queues.clear_limits(request.path["name"])
    return _done(request, "The limits of the code apply as soon as a worker starts.")


@PAGES.action("/queues/{name}/rotate")
def rotate_secret(request: PageRequest) -> Redirect:
    """Sign with a new secret."""
    queues, name = _owner(request)
    if queues.rotate_secret(name) is None:
        raise QueueNotFound(name)
    return _done(request, "Pushes are signed with a new secret; the old one also signs for a day.")


@PAGES.action("/queues/{name}/delete")
def delete_queue(request: PageRequest) -> Redirect:
    """Remove a saved queue without unfinished jobs."""
    queues, name = _owner(request)
    deleted = queues.delete(name)
    return Redirect("/queues", "The queue is deleted." if deleted else "The queue was deleted.")


def _done(request: PageRequest, notice: str) -> Redirect:
    """Back to the list, or to the page of the queue."""
    own = f"/queues/{quote(request.path['name'], safe='')}"
    return Redirect("/queues" if request.form.get("back") == "/queues" else own, notice)


def _owner(request: PageRequest) -> tuple[Queues, str]:
    """The calls of the tenant that has the queue, and its name there."""
    name = request.path["name"]
    if request.session.tenant:
        return request.calls.queues, name
    owner, own = parted(checks.queue(name, "queue"))
    return (request.onefold.tenant(owner) if owner else request.onefold).queues, own


def _saved(request: PageRequest) -> Queue:
    queues, name = _owner(request)
    queue = queues.get(name)
    if queue is None:
        raise QueueNotFound(name)
    return queue


def _found(request: PageRequest) -> Queue:
    """The queue: saved, or known by its limits or jobs."""
    queues, name = _owner(request)
    queue = queues.get(name, counts=True)
    if queue is not None:
        return queue
    for one in request.calls.queues.find():
        if shown(request.session.tenant, one.full_name) == request.path["name"]:
            return one
    full_name = qualified(request.session.tenant, name)
    if full_name in request.calls.queues.count_failing():
        return Queue(tenant=request.session.tenant, name=name)
    raise QueueNotFound(name)


def _view(request: PageRequest, queue: Queue, failing: dict[str, FailingCounts]) -> QueueView:
    tenant = request.session.tenant
    numbers = failing.get(queue.full_name, FailingCounts())
    # A tenant can only pause queues that are saved.
    can_pause = not tenant or queue.created_at is not None
    return QueueView(shown(tenant, queue.full_name), queue, numbers, can_pause)


def _page(
    request: PageRequest,
    queue: Queue,
    limits: Mapping[str, str],
    problems: dict[str, str],
    *,
    status: int = 200,
) -> Page:
    view = _view(request, queue, request.calls.queues.count_failing())
    values = {
        "view": view,
        "is_served": is_served(request, queue.full_name),
        "last_push": _last_push(request, queue),
        "limits": limits,
        "problems": problems,
    }
    return Page("queue.html", values, status)


def _last_push(request: PageRequest, queue: Queue) -> Job | None:
    """The newest job that was pushed, of those that were created last."""
    if queue.endpoint is None:
        return None
    owner = request.onefold.tenant(queue.tenant) if queue.tenant else request.onefold
    jobs = owner.find(queue=queue.full_name, newest_first=True, limit=PUSHED)
    # `pushed` is of the push that finished a job.
    return next((job for job in jobs if (job.error if queue.failures else job.pushed)), None)


# --- the form -------------------------------------------------------------------------------------


def _form(
    name: str | None, fields: dict[str, str], problems: dict[str, str], *, status: int = 200
) -> Page:
    values = {"name": name, "fields": fields, "problems": problems, "modes": MODES}
    return Page("queue_form.html", values, status)


def _limits_of(queue: QueueSettings) -> dict[str, str]:
    return {
        "concurrency": str(queue.concurrency or ""),
        "rate_limit": queue.rate_limit or "",
    }


def _fields_of(queue: QueueSettings) -> dict[str, str]:
    return {
        "endpoint": queue.endpoint or "",
        "mode": queue.mode,
        "max_attempts": str(queue.max_attempts),
        "ack_timeout": f"{queue.ack_timeout.total_seconds():.10g}",
        **_limits_of(queue),
    }


def _settings(request: PageRequest, before: QueueSettings) -> QueueSettings:
    """The settings of the form. Left out, the secrets and the pause stay."""
    given = {name: request.form.get(name, "").strip() for name in FIELDS}
    place: str | None = None
    if given["endpoint"]:
        read = endpoint(given["endpoint"])
        AddressPolicy(request.dashboard.push_allow).check(read)
        place = read.url
    seconds = _number(request, "ack_timeout")
    changed: dict[str, Any] = {
        "endpoint": place,
        "mode": given["mode"],
        "max_attempts": _number(request, "max_attempts"),
        "concurrency": _number(request, "concurrency"),
        "rate_limit": given["rate_limit"] or None,
        "signing_secret": None,
        "previous_secrets": (),
        "paused": None,
        "paused_reason": None,
    }
    if seconds is not None:
        changed["ack_timeout"] = timedelta(seconds=min(seconds, 10**9))
    if changed["max_attempts"] is None:
        raise InvalidInput("max_attempts", "must be given")
    return msgspec.structs.replace(before.settings(), **changed)


def _number(request: PageRequest, field: str) -> int | None:
    text = request.form.get(field, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 10:  # noqa: PLR2004 - digits
        raise InvalidInput(field, f"must be a whole number, got {text!r}")
    return int(text)


def _problems(request: PageRequest, save: Callable[[], object]) -> dict[str, str]:
    """Save; returns what is wrong, by the name of the field."""
    try:
        save()
    except InvalidInput as error:
        field = {"limit": "concurrency", "rate": "rate_limit"}.get(error.field, error.field)
        place = "name" if "name" in request.form else "endpoint"
        if field in {"name", *FIELDS}:
            place = field
        return {place: error.reason if place == field else str(error)}
    return {}
