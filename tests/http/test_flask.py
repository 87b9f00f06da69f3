"""What Flask has of its own: error handlers, views of classes, responses of many kinds.

The scenario (`test_scenario.py`) has the rest.
"""

import io
from collections.abc import Iterator
from typing import Any

import flask
import pytest
from flask.testing import FlaskClient
from flask.views import MethodView
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from onefold import InvalidInput, Onefold, UsageError
from onefold.web.flask import Idempotency, Once, once_of
from tests.fixtures.colours import Store


@pytest.fixture
def app() -> flask.Flask:
    return flask.Flask("shop")


@pytest.fixture
def idempotency(onefold: Onefold, app: flask.Flask) -> Idempotency:
    idempotency = Idempotency(onefold, takeover="refuse")
    idempotency.init_app(app)
    return idempotency


def alice() -> int:
    return 7


def post(client: FlaskClient, path: str = "/pay", key: str = "k", **more: Any) -> Any:
    return client.post(path, headers={"Idempotency-Key": key}, **more)


def test_whatever_a_view_may_return_is_stored(app: flask.Flask, idempotency: Idempotency) -> None:
    @app.post("/pay")
    @idempotency(principal=alice)
    def pay() -> Any:
        return {"paid": 1.0}, 201, {"X-Receipt": "ü".encode().decode("latin-1")}

    first, retry = post(app.test_client()), post(app.test_client())

    assert (retry.status_code, retry.data) == (201, first.data)
    assert retry.headers["X-Receipt"] == first.headers["X-Receipt"]
    assert retry.headers["Content-Type"] == "application/json"


def test_h137_rows_of_an_exception_that_was_handled_are_undone(
    app: flask.Flask, idempotency: Idempotency, onefold: Onefold
) -> None:
    @app.errorhandler(LookupError)
    def gone(error: LookupError) -> Any:
        return "gone", 404

    @app.post("/pay")
    @idempotency(principal=alice, transaction=onefold)
    def pay(once: Once) -> Any:
        once.connection.execute("create table payment (id integer)")
        raise LookupError

    @app.post("/look")
    @idempotency(principal=alice, transaction=onefold)
    def look(once: Once) -> Any:
        found = once.connection.execute("select name from sqlite_master where name = 'payment'")
        return str(len(found.fetchall()))

    assert post(app.test_client()).status_code == 404
    assert post(app.test_client()).headers["Idempotent-Replayed"] == "true"
    assert post(app.test_client(), "/look", "other").data == b"0"


@pytest.mark.parametrize("error", [ValueError("oh"), SystemExit()])
def test_h139_what_nobody_handles_goes_on_and_is_remembered(
    app: flask.Flask, idempotency: Idempotency, error: BaseException
) -> None:
    @app.post("/pay")
    @idempotency(principal=alice)
    def pay() -> Any:
        raise error

    app.testing = True
    with pytest.raises(type(error)):
        post(app.test_client())

    assert b"attempt_failed" in post(app.test_client()).data


@pytest.mark.parametrize("late", [False, True])
def test_h135_an_exception_is_answered_as_its_retry_and_logged(
    app: flask.Flask, idempotency: Idempotency, caplog: pytest.LogCaptureFixture, *, late: bool
) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"a"
        raise ValueError("oh")

    @app.post("/pay")
    @idempotency(principal=alice)
    def pay() -> Any:
        if late:
            return flask.Response(pieces())
        raise ValueError("oh")

    told: list[Any] = []

    def note(_sender: Any, exception: Any) -> None:
        told.append(exception)

    with flask.got_request_exception.connected_to(note, app):
        first, retry = post(app.test_client()), post(app.test_client())

    assert (first.status_code, first.data) == (500, retry.data)
    assert b"attempt_failed" in first.data
    assert [type(error) for error in told] == [ValueError]
    assert "ValueError: oh" in caplog.text


def test_views_of_a_class_are_decorated_one_by_one_or_all_together(
    app: flask.Flask, idempotency: Idempotency
) -> None:
    class One(MethodView):
        @idempotency(principal=alice)
        def post(self) -> str:
            return once_of().request_key or ""

        def get(self) -> str:
            return "form"

    class All(MethodView):
        decorators = [idempotency(principal=alice)]  # noqa: RUF012 - as Flask has it

        def post(self) -> str:
            return "all"

    with app.test_request_context(), pytest.raises(UsageError, match="has no policy"):
        once_of()
    app.add_url_rule("/one", view_func=One.as_view("one"))
    app.add_url_rule("/all", view_func=All.as_view("all"))
    client = app.test_client()

    assert [post(client, "/one").data, client.get("/one").data] == [b"k", b"form"]
    assert [post(client, "/all", "other").data] == [b"all"]
    assert idempotency.report() == [
        "POST /one: at most once (leased, takeover refuse; key required, kept 24 h)",
        "POST /all: at most once (leased, takeover refuse; key required, kept 24 h)",
    ]


def test_one_view_may_show_a_form_and_take_it(app: flask.Flask, idempotency: Idempotency) -> None:
    @app.route("/pay", methods=["GET", "POST"])
    @idempotency(principal=alice)
    def pay(once: Once) -> str:
        return "form" if once is None else "paid"  # type: ignore[redundant-expr]

    assert [app.test_client().get("/pay").data, post(app.test_client()).data] == [b"form", b"paid"]


def test_a_view_that_only_reads_needs_no_key(app: flask.Flask, idempotency: Idempotency) -> None:
    @app.get("/pay")
    @idempotency(principal=alice)
    def pay() -> str:
        return "read"

    with pytest.raises(InvalidInput, match="is not for GET"):
        idempotency.report()
    with pytest.raises(InvalidInput, match="must be a function"):
        idempotency(principal=alice)(MethodView)


def test_h096_a_form_can_be_read_before_the_view(
    app: flask.Flask, idempotency: Idempotency
) -> None:
    @app.before_request
    def read() -> None:
        assert flask.request.form["cake"]

    @app.post("/pay")
    @idempotency(principal=alice, fingerprint="form")
    def pay() -> str:
        return flask.request.form["cake"]

    client = app.test_client()

    assert post(client, data={"cake": "apple"}).data == b"apple"
    assert post(client, data={"cake": "apple"}).headers["Idempotent-Replayed"] == "true"
    assert post(client, data={"cake": "cheese"}).status_code == 422


@pytest.mark.parametrize("stream", ["buffer", "forward", "tombstone"])
def test_h086_h088_h090_parts_and_files_are_stored_whole_or_buried(
    app: flask.Flask, idempotency: Idempotency, stream: Any
) -> None:
    keyed = idempotency(principal=alice, stream=stream, scope="route", mark_first=True)

    @app.post("/pay")
    @keyed
    def pay() -> Any:
        return flask.Response(iter([b"a", b"b"]), mimetype="text/plain")

    @app.post("/file")
    @keyed
    def file() -> Any:
        return flask.send_file(io.BytesIO(b"ab"), mimetype="text/plain")

    for path in ("/pay", "/file"):
        first = post(app.test_client(), path)
        assert (first.data, first.headers["Idempotent-Replayed"]) == (b"ab", "false")
        retry = post(app.test_client(), path)
        if stream == "tombstone":
            assert b"response_not_kept" in retry.data
        else:
            assert (retry.data, retry.headers["Idempotent-Replayed"]) == (b"ab", "true")


def test_h046_h047_what_the_router_answers_is_no_outcome(
    app: flask.Flask, idempotency: Idempotency
) -> None:
    @app.post("/pay/")
    @idempotency(principal=alice)
    def pay() -> str:
        return "paid"

    client = app.test_client()

    assert post(client, "/nowhere").status_code == 404
    assert post(client, "/pay").status_code == 308
    assert client.patch("/pay/", headers={"Idempotency-Key": "k"}).status_code == 405
    assert post(client, "/pay/").data == b"paid"


def test_h160_a_session_of_sqlalchemy_is_committed_with_the_answer(
    app: flask.Flask, idempotency: Idempotency, store: Store
) -> None:
    engine = create_engine(store.url)
    session: scoped_session[Session] = scoped_session(sessionmaker(engine))
    with engine.begin() as connection:
        connection.execute(text("create table payment (id integer)"))

    @app.post("/pay")
    @idempotency(principal=alice, transaction=session)
    def pay() -> Any:
        session.execute(text("insert into payment values (1)"))
        if flask.request.args:
            flask.abort(409)
        return "paid"

    client = app.test_client()
    assert [post(client).data, post(client).data] == [b"paid", b"paid"]
    assert post(client, "/pay?fail=1", "other").status_code == 409
    session.remove()

    with engine.connect() as connection:
        assert connection.execute(text("select count(*) from payment")).scalar() == 1
    engine.dispose()
