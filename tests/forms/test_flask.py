"""Forms of a Flask application: its own templates, WSGI, one commit (H221, H222, H229)."""

from collections.abc import Iterator
from typing import Any

import flask
import pytest
from flask.testing import FlaskClient
from sqlalchemy import Engine, text

from onefold.web.flask import Idempotency, Once
from onefold.web.forms import Form, FormKeys, WsgiNoStore
from onefold.web.forms.jinja import add_form_keys
from tests.fixtures.colours import Store
from tests.forms.conftest import SECRET
from tests.forms.html import value

PAGE = """<form method="post">{{ onefold_key("order") }}<input name="what"><button>Order</button>
</form>"""


@pytest.fixture
def client(store: Store, engine: Engine) -> Iterator[FlaskClient]:
    app = flask.Flask(__name__)
    app.secret_key = "Flask's own"
    keys = FormKeys(SECRET)
    add_form_keys(app.jinja_env, keys, session=lambda context: context["session"]["id"])
    idempotency = Idempotency(store.open())

    def page() -> str:
        flask.session.setdefault("id", "visitor-1")
        return flask.render_template_string(PAGE)

    @idempotency(
        form=Form(keys, "order"), principal=lambda: flask.session.get("id"), transaction=engine
    )
    def order(once: Once) -> Any:
        what = flask.request.form["what"]
        once.connection.execute(text("insert into purchase values (:what)"), {"what": what})
        return flask.redirect("/thanks", 303)

    app.get("/order")(page)
    app.post("/order")(order)
    idempotency.init_app(app)
    app.wsgi_app = WsgiNoStore(app.wsgi_app)  # type: ignore[method-assign]
    with engine.begin() as connection:
        connection.execute(text("create table purchase (what text)"))
    with app.test_client() as client:
        yield client


def order(client: FlaskClient, key: str, what: str = "tea") -> Any:
    fields = {"onefold_key": key, "what": what}
    return client.post("/order", data=fields, headers={"Accept": "text/html"})


def orders(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [row[0] for row in connection.execute(text("select what from purchase"))]


def test_h221_h222_two_submissions_are_one_order(client: FlaskClient, engine: Engine) -> None:
    page = client.get("/order")
    key = value(page.text, "onefold_key")

    first, second, changed = order(client, key), order(client, key), order(client, key, "coffee")

    assert changed.status_code == 422
    assert value(changed.text, "what") == "coffee"
    assert page.headers["Cache-Control"] == "no-store"
    assert (first.status_code, second.status_code) == (303, 303)
    assert second.headers["Location"] == first.headers["Location"]
    assert orders(engine) == ["tea"]
