"""Forms of a Flask application: its own templates, WSGI, one commit (H221, H222, H223, H229)."""

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
        if not what:
            return page(), 422
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


def test_h221_two_submissions_are_one_order(client: FlaskClient, engine: Engine) -> None:
    page = client.get("/order")
    key = value(page.text, "onefold_key")

    first, second = order(client, key), order(client, key)

    assert page.headers["Cache-Control"] == "no-store"
    assert (first.status_code, second.status_code) == (303, 303)
    assert second.headers["Location"] == first.headers["Location"]
    assert orders(engine) == ["tea"]


def test_h222_a_changed_form_can_be_submitted_as_new(client: FlaskClient, engine: Engine) -> None:
    key = value(client.get("/order").text, "onefold_key")
    order(client, key)

    changed = order(client, key, "coffee")
    again = order(client, value(changed.text, "onefold_key"), value(changed.text, "what"))

    assert (changed.status_code, again.status_code) == (422, 303)
    assert orders(engine) == ["tea", "coffee"]


def test_h223_a_form_that_was_not_valid_keeps_its_key(client: FlaskClient, engine: Engine) -> None:
    key = value(client.get("/order").text, "onefold_key")

    refused, corrected = order(client, key, ""), order(client, key, "tea")

    assert (refused.status_code, corrected.status_code) == (422, 303)
    assert refused.headers["Cache-Control"] == "no-store"
    assert orders(engine) == ["tea"]


def test_h224_a_key_of_another_session_is_refused(client: FlaskClient, engine: Engine) -> None:
    key = value(client.get("/order").text, "onefold_key")
    with client.session_transaction() as session:
        session["id"] = "visitor-2"

    refused = order(client, key)

    assert refused.status_code == 400
    assert "Please open the form again" in refused.text
    assert orders(engine) == []
