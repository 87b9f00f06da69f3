"""A small shop with one form, as an application would write it: Starlette, Jinja2, SQLAlchemy."""

from contextlib import nullcontext
from typing import Any
from uuid import uuid4

from jinja2 import DictLoader, Environment
from sqlalchemy import Engine, text
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from onefold import Onefold
from onefold.web.forms import Form, FormKeys, NoStore
from onefold.web.forms.jinja import add_form_keys
from onefold.web.starlette import Idempotency, Once
from tests.http.scenario_site import Gate

SECRET = "a secret of the shop's own"
PAGES = {
    "form": """<!doctype html><title>Order</title>
        <p id="complaint">{{ complaint }}</p>
        <form method="post" action="/orders" enctype="{{ enctype }}">
            {{ onefold_key("order") }}
            <input type="hidden" name="csrf_token" value="{{ csrf }}">
            <input name="what" value="{{ what }}">
            <textarea name="note">{{ note }}</textarea>
            {% if enctype == "multipart/form-data" %}<input type="file" name="scan">{% endif %}
            <button name="action" value="order">Order</button>
        </form>""",
    "order": """<!doctype html><title>Done</title>
        <h1>Order {{ id }}</h1><p id="what">{{ what }}</p><p id="flash">{{ flash }}</p>""",
}


class Shop:
    """The application, and what a test knows of it."""

    def __init__(
        self, onefold: Onefold, engine: Engine, *, keeps_pages: bool = False, **options: Any
    ) -> None:
        """`options` are those of the one route; `keeps_pages` lets browsers keep the form."""
        self.engine = engine
        self.gate = Gate()
        self.gate.opened.set()
        self.keys = FormKeys(SECRET)
        self._enctype = "application/x-www-form-urlencoded"
        self._environment = Environment(loader=DictLoader(PAGES), autoescape=True)
        add_form_keys(self._environment, self.keys, session=lambda context: context["session"])
        idempotency = Idempotency(onefold)
        options.setdefault("form", Form(self.keys, "order", url="/orders/new"))
        guarded = idempotency(
            principal=lambda request: request.cookies.get("session"),
            **options,
        )
        self.app = Starlette(
            routes=[
                Route("/orders/new", self.form),
                Route("/orders", guarded(self.order), methods=["POST"]),
                Route("/orders/{id:int}", self.show),
            ],
            middleware=[] if keeps_pages else [Middleware(NoStore)],
        )
        self._keeps_pages = keeps_pages
        idempotency.install(self.app)
        with engine.begin() as connection:
            connection.execute(text("create table purchase (id integer primary key, what text)"))

    def upload(self) -> None:
        """Have a field for a file from now on."""
        self._enctype = "multipart/form-data"

    def orders(self) -> list[str]:
        """What was ordered, in order."""
        with self.engine.connect() as connection:
            found = connection.execute(text("select what from purchase order by id"))
            return [row[0] for row in found]

    def form(self, request: Request) -> Response:
        session = request.cookies.get("session") or uuid4().hex
        page = self._render("form", session=session, enctype=self._enctype, csrf=uuid4().hex)
        if self._keeps_pages:
            page.headers["Cache-Control"] = "max-age=60"
        page.set_cookie("session", session)
        return page

    async def order(self, request: Request, once: Once) -> Response:
        async with request.form() as fields:
            what, note = str(fields["what"]), str(fields["note"])
        if not what:
            page = self._render(
                "form",
                session=request.cookies["session"],
                enctype=self._enctype,
                complaint="What do you want?",
                note=note,
            )
            page.status_code = 422
            return page
        number = await run_in_threadpool(self._insert, what, once)
        response = RedirectResponse(f"/orders/{number}", status_code=303)
        response.set_cookie("flash", "Thank you!")
        return response

    def _insert(self, what: str, once: Once) -> int:
        joined = once.guarantee == "exactly once"
        with nullcontext(once.connection) if joined else once.transaction(self.engine) as rows:
            last = rows.execute(text("select coalesce(max(id), 0) from purchase")).scalar_one()
            number = int(last) + 1
            rows.execute(
                text("insert into purchase values (:id, :what)"), {"id": number, "what": what}
            )
        self.gate.go_through()
        return number

    def show(self, request: Request) -> Response:
        number = request.path_params["id"]
        with self.engine.connect() as connection:
            found = connection.execute(
                text("select what from purchase where id = :id"), {"id": number}
            )
            what = found.scalar_one()
        page = self._render("order", id=number, what=what, flash=request.cookies.get("flash", ""))
        page.delete_cookie("flash")
        return page

    def _render(self, name: str, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._environment.get_template(name).render(values))
