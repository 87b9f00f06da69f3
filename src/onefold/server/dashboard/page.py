"""What a page of the dashboard receives and returns, and the table of pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode

import msgspec

from onefold.errors import InvalidInput
from onefold.web.http import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onefold.app.onefold import Onefold, Tenant
    from onefold.server.dashboard.dashboard import Dashboard
    from onefold.server.dashboard.sessions import DashboardSession

FRAGMENT: Final = "onefold-fragment"
"""The header of a request for the parts of a page that change."""
MOST_FIELDS: Final = 1000
"""More are ignored in a URL."""
_OWN_PATH: Final = re.compile(r"/(?![/\\])[!-~]*")
"""Browsers remove tabs and line feeds, so that `/<tab>/host` is another site."""


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A request as an adapter passes it on."""

    http: HttpRequest
    """Its path is without `root`."""
    body: bytes = b""
    root: str = ""
    """The path where the dashboard is mounted; empty at the root of the host."""
    secure: bool = False
    """True for https."""
    client: tuple[str, int] | None = None
    """The address of the peer."""
    version: str | None = None
    """The version of HTTP."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name."""
        return dict(self.http.headers)


Pairs: TypeAlias = "list[tuple[str, str]]"


class PageRequest:
    """The request of a page: its session, its values, and the calls of its tenant."""

    def __init__(
        self,
        dashboard: Dashboard,
        incoming: Incoming,
        session: DashboardSession,
        path: Mapping[str, str],
    ) -> None:
        """`path` has the parameters of the path."""
        self.dashboard: Dashboard = dashboard
        self.incoming: Incoming = incoming
        self.session: DashboardSession = session
        self.path: Mapping[str, str] = path

    @property
    def onefold(self) -> Onefold:
        """The Onefold of the dashboard, for calls that are not for one tenant."""
        return self.dashboard.onefold

    @property
    def calls(self) -> Tenant:
        """The calls of the tenant of the session."""
        tenant = self.session.tenant
        return self.onefold.tenant(tenant) if tenant else self.onefold

    @cached_property
    def query(self) -> dict[str, str]:
        """The parameters of the URL that are not empty."""
        return {name: value.strip() for name, value in self._pairs if value.strip()}

    @property
    def given(self) -> dict[str, str]:
        """The parameters of the URL as they were sent: spaces count."""
        return dict(self._pairs)

    @property
    def _pairs(self) -> Pairs:
        fields = self.incoming.http.query.split("&")
        return parse_qsl("&".join(fields[:MOST_FIELDS]))

    @cached_property
    def form(self) -> dict[str, str]:
        """The fields of a submitted form; of a repeated one the last."""
        return dict(self.fields)

    def values(self, name: str) -> list[str]:
        """All values of a field of a submitted form, such as of checkboxes."""
        return [value for found, value in self.fields if found == name]

    @cached_property
    def fields(self) -> Pairs:
        """The fields of a submitted form, in order."""
        text = self.incoming.body.decode("utf-8", "replace")
        try:
            return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError:
            raise InvalidInput("form", f"has more than {MOST_FIELDS} fields") from None

    @property
    def here(self) -> str:
        """The path of this page, without the root and the query."""
        return self.incoming.http.path

    def url(self, path: str, **query: str | None) -> str:
        """The URL of a page of the dashboard: `url("/jobs", state="dead")`."""
        given = {name.rstrip("_"): value for name, value in query.items() if value}
        return self.incoming.root + path + (f"?{urlencode(given)}" if given else "")


def own_path(text: str) -> str:
    """The path of a page of this dashboard, as a client sent it; else that of the first page."""
    return text if _OWN_PATH.fullmatch(text) else "/"


class Page(msgspec.Struct, frozen=True):
    """A page to render."""

    template: str
    """The name of a file in `templates/`."""
    values: Mapping[str, Any] = {}
    status: int = 200
    repeated: Redirect | None = None
    """Of an action whose page has a secret: what is stored in its place, and what a repeat
    receives.
    """


class Redirect(msgspec.Struct, frozen=True):
    """Where the browser goes next, and what the visitor sees there."""

    path: str
    """Without the root: `/jobs`."""
    notice: str = ""
    """A sentence about what was done."""
    failed: bool = False
    """True if the notice is about something that was not done."""
    cookie: str | None = None
    """The value of the session's cookie; empty to delete it."""
    tenant: str | None = None
    """The tenant that the operator looks at from now on; empty for none."""


View: TypeAlias = Callable[[PageRequest], Page | Redirect]
Needs: TypeAlias = Literal["nothing", "read", "admin"]
"""Who may open a page: everyone, every session, or a session that may change things."""


class PageRoute(msgspec.Struct, frozen=True):
    """One method on one path of the dashboard."""

    method: str
    path: str
    """`/jobs/{id}`"""
    view: View
    needs: Needs


class PageTable(list[PageRoute]):
    """The pages of one module.

    PAGES = PageTable()

    @PAGES.get("/jobs/{id}")
    def show_job(request: PageRequest) -> Page: ...

    @PAGES.action("/jobs/{id}/cancel")
    def cancel_job(request: PageRequest) -> Redirect: ...
    """

    def get(self, path: str, *, needs: Needs = "read") -> Callable[[View], View]:
        """Add the decorated page."""
        return self._adding("GET", path, needs)

    def action(self, path: str, *, needs: Needs = "admin") -> Callable[[View], View]:
        """Add the decorated action: a form is submitted to it, and a form key makes it run once."""
        return self._adding("POST", path, needs)

    def _adding(self, method: str, path: str, needs: Needs) -> Callable[[View], View]:
        def decorate(view: View) -> View:
            self.append(PageRoute(method, path, view, needs))
            return view

        return decorate


class NavigationItem(msgspec.Struct, frozen=True):
    """A link of the navigation."""

    label: str
    path: str
    icon: str
    """The name of an icon in `templates/icons.html`."""
    for_operator: bool = False
    """True if the sessions of tenants have no such page."""


class PageFinder:
    """Finds the route of a path, which is percent-encoded."""

    def __init__(self, routes: list[PageRoute]) -> None:
        """Earlier routes win."""
        self._routes = [(route, route.path.split("/")) for route in routes]

    def find(self, path: str) -> tuple[dict[str, PageRoute], dict[str, str]]:
        """The routes of a path by method, and the values of its parameters."""
        parts = path.split("/")
        found: dict[str, PageRoute] = {}
        values: dict[str, str] = {}
        for route, template in self._routes:
            if len(template) == len(parts) and all(map(_matches, template, parts)):
                found.setdefault(route.method, route)
                values = {
                    name[1:-1]: unquote(part)
                    for name, part in zip(template, parts, strict=True)
                    if name[:1] == "{"
                }
        return found, values

    @property
    def paths(self) -> Iterator[str]:
        """The templates of all paths."""
        return iter(dict.fromkeys(route.path for route, _ in self._routes))


def _matches(template: str, part: str) -> bool:
    return bool(part) if template[:1] == "{" else template == part
