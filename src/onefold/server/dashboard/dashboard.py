"""`Dashboard`: from a request to a response, without a framework.

A page needs a session. An action also needs a form key of that session, which makes it run once:
a double click receives the response of the first click.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from itsdangerous import BadSignature, Signer

from onefold import __version__
from onefold.errors import DatabaseError, InvalidInput, JobNotFound, OnefoldError, QueueNotFound
from onefold.server.dashboard.navigation import NAVIGATION, PAGES
from onefold.server.dashboard.page import (
    FRAGMENT,
    Page,
    PageFinder,
    PageRequest,
    Redirect,
    own_path,
)
from onefold.server.dashboard.rendering import STATIC, environment
from onefold.server.dashboard.sessions import (
    TENANT,
    DashboardSession,
    Sessions,
    at_tenant,
    set_cookie,
)
from onefold.server.problems import AWAY
from onefold.web.forms.form import Form
from onefold.web.forms.form_keys import FormKeys
from onefold.web.forms.no_store import open_page
from onefold.web.http import HttpResponse
from onefold.web.idempotency.body import digested
from onefold.web.idempotency.exchange import Exchange
from onefold.web.idempotency.keyed_routes import RouteRegistry
from onefold.web.problems import (
    KEY_EXPIRED,
    KEY_INVALID,
    KEY_MISSING,
    KEY_REUSED,
    OUTCOME_UNKNOWN,
    Refused,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onefold.app.onefold import Onefold
    from onefold.server.dashboard.page import Incoming, PageRoute
    from onefold.web.forms.form_keys import Markup
    from onefold.web.http import Header
    from onefold.web.idempotency.keyed_routes import KeyedRoute

FORM: Final = "dashboard"
"""The name in the keys of its forms."""
LOGIN: Final = "/login"
STATIC_PATH: Final = "/static/{digest}/{name}"
SECURITY: Final[tuple[Header, ...]] = (
    (
        "content-security-policy",
        (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
            " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        ),
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    # Not no-referrer: with it, browsers send `Origin: null` with our own forms.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
)
_MISSING: Final = {
    JobNotFound: (
        "No such job",
        "There is no such job, or no longer: finished jobs are deleted after their retention.",
    ),
    QueueNotFound: (
        "No such queue",
        "There is no such queue: it has no settings, no limits and no jobs.",
    ),
}
_TOO_LATE: Final = (
    503,
    "This took too long",
    "The page was not ready in time. Try again in a moment.",
)
_AWAY: Final = (
    "The database does not answer",
    f"{AWAY}. Try again in a moment; the log has the details.",
)
_OUTDATED: Final = (
    "This page is out of date",
    (
        "The form is not of your session, or its page was open for too long. Nothing was done. Open"
        " the page again, and repeat what you did."
    ),
)
_OF_FORMS: Final = {
    KEY_MISSING.code: _OUTDATED,
    KEY_INVALID.code: _OUTDATED,
    KEY_EXPIRED.code: _OUTDATED,
    KEY_REUSED.code: (
        "Sent before",
        (
            "This form was sent before, with other values. Nothing was done now. Open the page"
            " again, and look at what the first one has done."
        ),
    ),
    OUTCOME_UNKNOWN.code: (
        "The outcome is unknown",
        (
            "The server stopped while it did this, so it may be done, or done in part. Nothing was"
            " done now. Open the page again, look at what is done, and repeat what is not."
        ),
    ),
}
"""Titles and texts in place of those for programs, by the code of the problem."""
_HTML: Final = ("content-type", "text/html; charset=utf-8")
_NO_STORE: Final = ("cache-control", "no-store")

log: logging.Logger = logging.getLogger("onefold.server")


class PageFailure(Exception):
    """A request that ends with a page about an error."""

    def __init__(self, status: int, title: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.title = title


class Dashboard:
    """The dashboard of one Onefold."""

    def __init__(
        self,
        onefold: Onefold,
        secret: str,
        *,
        anonymous: bool = False,
        live: bool = True,
        push_allow: Sequence[str] = (),
    ) -> None:
        """`secret` signs cookies and forms.

        `anonymous` accepts visitors of this machine while there are no API keys. With `live`,
        pages refresh by the stream at `/events`, otherwise every few seconds. `push_allow` has
        networks and hosts that endpoints may have beside public addresses.
        """
        self.onefold: Onefold = onefold
        self.push_allow: Sequence[str] = push_allow
        self.sessions: Sessions = Sessions(onefold, secret, anonymous=anonymous)
        self._live = live
        self._pages = PageFinder(PAGES)
        self._keys = FormKeys(secret)
        self._notices = Signer(secret, "onefold.dashboard.notice", key_derivation="hmac")
        self._environment = environment()

    @property
    def paths(self) -> tuple[str, ...]:
        """The templates of all its paths."""
        return (*self._pages.paths, STATIC_PATH)

    @cached_property
    def _keyed_route(self) -> KeyedRoute:
        """The policy of all actions. After a crash an action is not repeated by itself."""
        options = {"form": Form(self._keys, FORM), "takeover": "refuse"}
        return RouteRegistry(self.onefold).route(options)

    def respond(self, incoming: Incoming, session: DashboardSession | None = None) -> HttpResponse:
        """The response to a request. A framework with a login of its own passes the session."""
        open_page()  # Each page is sent with Cache-Control: no-store.
        return _secured(self._response(incoming, session))

    def too_late(self, incoming: Incoming) -> HttpResponse:
        """The response to a request whose page was not ready at its deadline."""
        return _secured(self._failed(incoming, None, PageFailure(*_TOO_LATE)))

    def _response(self, incoming: Incoming, session: DashboardSession | None) -> HttpResponse:
        path = incoming.http.path
        if path.startswith("/static/"):
            return self._static(incoming)
        try:
            found, values = self._pages.find(path)
            route = self._route(found, incoming)
            _check_origin(incoming)
            is_new = False
            session = session and at_tenant(session, incoming)
            if session is None and route.needs != "nothing":
                session = self.sessions.find(incoming)
                if session is None:
                    return self._to_login(incoming)
                is_new = session.is_anonymous and not self.sessions.has_cookie(incoming)
            response = self._visited(route, incoming, session, values)
        except TimeoutError:
            return self._failed(incoming, session, PageFailure(*_TOO_LATE))
        except Exception as error:  # noqa: BLE001 - the visitor receives a page about any error
            return self._failed(incoming, session, _failure_of(error))
        if is_new and session is not None:
            cookie = set_cookie(self.sessions.cookie(session), incoming)
            return response.adding("set-cookie", cookie)
        return response

    def _static(self, incoming: Incoming) -> HttpResponse:
        _, _, digest, name, *_ = [*incoming.http.path.split("/"), "", ""]
        found = STATIC.response(digest, name)
        return found or HttpResponse(404, (("content-type", "text/plain"),), b"No such file.")

    def _route(self, found: Mapping[str, PageRoute], incoming: Incoming) -> PageRoute:
        method = "GET" if incoming.http.method == "HEAD" else incoming.http.method
        route = found.get(method)
        if route is not None:
            return route
        if found:
            raise PageFailure(405, "Not possible", f"{method} is not possible here.")
        raise PageFailure(404, "Page not found", "There is no page at this address.")

    def _visited(
        self,
        route: PageRoute,
        incoming: Incoming,
        session: DashboardSession | None,
        values: Mapping[str, str],
    ) -> HttpResponse:
        if session is None:
            return self._rendered(route.view(_public(self, incoming, values)), incoming, None)
        request = PageRequest(self, incoming, session, values)
        if route.needs == "admin" and session.role != "admin":
            raise PageFailure(
                403,
                "Read only",
                "Your API key has the scope read, so it cannot change anything. Nothing was done."
                " Log in with a key of the scope admin.",
            )
        if route.method == "POST" and route.needs != "nothing":
            return self._act(route, request)
        return self._rendered(route.view(request), incoming, session)

    def _act(self, route: PageRoute, request: PageRequest) -> HttpResponse:
        """Run an action once per form key, or replay its response."""
        session, incoming = request.session, request.incoming
        if "confirm" in request.form and "confirmed" not in request.form:
            return self._rendered(_confirmation(request), incoming, session)
        exchange = Exchange(
            self._keyed_route,
            incoming.http,
            digested(incoming.body),
            principal=session.holder,
            tenant=session.tenant,
        )
        stored = exchange.run(exchange.begin())
        if stored is not None:
            return _unless_refused(exchange, stored)
        try:
            result = _done(route, request)
            response = self._rendered(result, incoming, session)
            stored = response
            if isinstance(result, Page) and result.repeated is not None:
                stored = self._rendered(result.repeated, incoming, session)
        except BaseException:
            exchange.run(exchange.give_back())
            raise
        sent = _unless_refused(exchange, exchange.run(exchange.finish(stored)))
        return sent if stored is response else response

    # --- responses --------------------------------------------------------------------------------

    def _rendered(
        self, result: Page | Redirect, incoming: Incoming, session: DashboardSession | None
    ) -> HttpResponse:
        if isinstance(result, Page):
            return self._page(result, incoming, session)
        location = incoming.root + result.path
        if result.notice:
            sign = "!" if result.failed else "."
            notice = self._notices.sign(sign + result.notice).decode()
            mark = "&" if "?" in location else "?"
            location += mark + urlencode({"notice": notice})
        response = HttpResponse(303, (("location", location), _NO_STORE))
        if result.tenant is not None:
            response = response.adding("set-cookie", set_cookie(result.tenant, incoming, TENANT))
        if result.cookie is not None:
            response = response.adding("set-cookie", set_cookie(result.cookie, incoming))
        return response

    def _page(
        self, page: Page, incoming: Incoming, session: DashboardSession | None
    ) -> HttpResponse:
        request = PageRequest(self, incoming, session, {}) if session else None
        is_fragment = incoming.http.value(FRAGMENT) is not None
        text = self._environment.get_template(page.template).render(
            page.values,
            layout="fragment.html" if is_fragment else "base.html",
            root=incoming.root,
            static=f"{incoming.root}/static/{STATIC.digest}",
            here=incoming.http.path,
            session=session,
            can_act=session is not None and session.role == "admin",
            navigation=NAVIGATION,
            notice=self._notice(request),
            query=request.query if request else {},
            form_key=lambda: self._form_key(session),
            live=self._live,
            version=__version__,
        )
        return HttpResponse(page.status, (_HTML, _NO_STORE, ("vary", FRAGMENT)), text.encode())

    def _form_key(self, session: DashboardSession | None) -> Markup:
        assert session is not None, "a page without a session has no actions"
        return self._keys.hidden_field(FORM, session.holder)

    def _notice(self, request: PageRequest | None) -> tuple[bool, str] | None:
        """Whether the last action failed, and its notice. Signed: others cannot make one up."""
        if request is None or "notice" not in request.query:
            return None
        try:
            text = self._notices.unsign(request.query["notice"]).decode()
        except (BadSignature, UnicodeEncodeError):
            return None
        return text[0] == "!", text[1:]

    def _to_login(self, incoming: Incoming) -> HttpResponse:
        if incoming.http.value(FRAGMENT) is not None:
            return HttpResponse(401, (_NO_STORE,))
        wanted = incoming.http.path if incoming.http.method == "GET" else "/"
        if incoming.http.query and wanted != "/":
            wanted += f"?{incoming.http.query}"
        to = "" if wanted == "/" else f"?{urlencode({'next': wanted})}"
        return HttpResponse(303, (("location", f"{incoming.root}{LOGIN}{to}"), _NO_STORE))

    def _failed(
        self, incoming: Incoming, session: DashboardSession | None, failure: PageFailure
    ) -> HttpResponse:
        page = Page("failure.html", {"title": failure.title, "text": str(failure)}, failure.status)
        response = self._page(page, incoming, session)
        return response.adding("retry-after", "1") if failure.status == _TOO_LATE[0] else response


def _secured(response: HttpResponse) -> HttpResponse:
    return HttpResponse(response.status, (*response.headers, *SECURITY), response.body)


def _public(dashboard: Dashboard, incoming: Incoming, values: Mapping[str, str]) -> PageRequest:
    """The request of a page that needs no session."""
    unknown = DashboardSession(id="", tenant="", role="read", name="")
    return PageRequest(dashboard, incoming, unknown, values)


def _unless_refused(exchange: Exchange, response: HttpResponse) -> HttpResponse:
    """The response of an action; a form that did not run is an error."""
    if exchange.problem is not None:
        raise Refused(exchange.problem)
    return response


def _done(route: PageRoute, request: PageRequest) -> Page | Redirect:
    """The result of an action; an error of the caller is a notice on the page before."""
    try:
        return route.view(request)
    except DatabaseError:
        raise
    except OnefoldError as error:
        return Redirect(own_path(request.form.get("back", "/")), str(error), failed=True)


def _confirmation(request: PageRequest) -> Page:
    """A page that asks the question of a button, with the same form."""
    values = {
        "question": request.form["confirm"],
        "fields": request.fields,
        "back": own_path(request.form.get("back", "/")),
    }
    return Page("confirm.html", values)


def _check_origin(incoming: Incoming) -> None:
    """Reject a form of another site: also a login, which has no form key."""
    if incoming.http.method != "POST":
        return
    site, origin = incoming.http.value("sec-fetch-site"), incoming.http.value("origin")
    is_ours = site in {None, "same-origin", "none"}
    if is_ours and site is None and origin is not None:
        is_ours = origin.partition("://")[2] == incoming.http.value("host")
    if not is_ours:
        raise PageFailure(
            403, "Another site", "This form was sent by another site. Nothing was done."
        )


def _failure_of(error: Exception) -> PageFailure:
    match error:
        case PageFailure():
            return error
        case Refused():
            problem = error.problem
            texts = _OF_FORMS.get(problem.code, (problem.title, problem.detail))
            return PageFailure(problem.status, *texts)
        case JobNotFound() | QueueNotFound():
            return PageFailure(404, *_MISSING[type(error)])
        case InvalidInput():
            return PageFailure(400, "Invalid input", str(error))
        case DatabaseError():
            log.warning("A page of the dashboard: %s", error)
            return PageFailure(503, *_AWAY)
        case _:
            log.error("A page of the dashboard failed.", exc_info=error)
            return PageFailure(500, "This went wrong", "The page failed. The log has the details.")
