"""What WSGI has of its own: iterables, `close`, `write`, `exc_info`, and bodies that are read once.

The scenario (`test_scenario.py`) has the rest.
"""

import io
import sys
from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from onefold import LeaseLost, Onefold
from onefold.web.idempotency.body import MAX_IN_MEMORY
from onefold.web.wsgi import Idempotency, IdempotencyMiddleware

Application = Callable[[dict[str, Any], Any], Any]


class Sent:
    """What a server was given to send."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, list[tuple[str, str]]]] = []
        self.pieces: list[bytes] = []

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        assert exc_info is None
        assert not self.starts, "a server is told once"
        self.starts.append((status, headers))
        return self.pieces.append

    @property
    def status(self) -> int:
        return int(self.starts[0][0][:3])

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def header(self, name: str) -> str | None:
        return {found.lower(): value for found, value in self.starts[0][1]}.get(name.lower())


def environ(body: bytes = b"", key: str | None = "k", more: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/pay",
        "QUERY_STRING": "",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        **(more or {}),
    }
    return found if key is None else {**found, "HTTP_IDEMPOTENCY_KEY": key}


def call(app: Any, body: bytes = b"", key: str | None = "k", more: Any = None) -> Sent:
    """As a server does it: iterate, and close whatever happens."""
    sent = Sent()
    answered = app(environ(body, key, more), sent.start)
    try:
        sent.pieces.extend(answered)
    finally:
        if hasattr(answered, "close"):
            answered.close()
    return sent


def keyed(onefold: Onefold, app: Application, **options: Any) -> IdempotencyMiddleware:
    idempotency = Idempotency(onefold)
    options = options or {"takeover": "refuse"}
    idempotency.add("POST", "/pay", principal=lambda environ: "alice", **options)
    return idempotency.wrap(app)


class Pieces:
    """An iterable that counts how often it is closed."""

    def __init__(self, *pieces: bytes, error: Exception | None = None) -> None:
        self._pieces = pieces
        self._error = error
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self.closed += 1


class App:
    """Answers with pieces, and counts."""

    def __init__(self, *pieces: bytes, error: Exception | None = None) -> None:
        self.runs = 0
        self.made: list[Pieces] = []
        self._pieces = pieces
        self._error = error

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.runs += 1
        start_response("201 Made", [("Content-Type", "text/plain")])
        self.made.append(Pieces(*self._pieces, error=self._error))
        return self.made[-1]


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["buffer", "forward", "tombstone"])
def test_h073_h085_h089_h093_pieces_are_closed_once_and_come_back_as_one_body(
    onefold: Onefold, stream: str
) -> None:
    app = App(b"a", b"b", b"c")
    site = keyed(onefold, app, takeover="refuse", stream=stream, mark_first=True)

    first, retry = call(site), call(site)

    assert (first.body, app.made[0].closed, app.runs) == (b"abc", 1, 1)
    assert first.header("Idempotent-Replayed") == "false"
    assert retry.header("Idempotent-Replayed") == "true"
    if stream != "tombstone":
        assert (retry.body, retry.header("Content-Length")) == (b"abc", "3")


@pytest.mark.parametrize("stream", ["buffer", "forward", "tombstone"])
def test_h093_h094_both_sides_keep_to_pep_3333(onefold: Onefold, stream: str) -> None:
    def app(environ: Any, start_response: Any) -> Any:
        environ["wsgi.input"].read(5)
        start_response("201 Created", [("Content-Type", "text/plain")])
        return iter([b"a", b"b"])

    checked: Any = validator(keyed(onefold, validator(app), takeover="refuse", stream=stream))

    def status() -> int:
        asked, sent = environ(more={"SCRIPT_NAME": ""}), Sent()
        setup_testing_defaults(asked)
        answered = checked(asked, sent.start)
        sent.pieces.extend(answered)
        answered.close()
        return sent.status

    assert [status(), status()] == [201, 409 if stream == "tombstone" else 201]


@pytest.mark.parametrize("stream", ["forward", "tombstone"])
def test_h093_h087_an_iterable_is_closed_once_when_it_breaks_off(
    onefold: Onefold, stream: str
) -> None:
    app = App(b"a", b"b", error=ValueError("midway"))

    with pytest.raises(ValueError, match="midway"):
        call(keyed(onefold, app, takeover="refuse", stream=stream))
    assert app.made[0].closed == 1

    at_once = App(error=ValueError("at once"))
    site = keyed(onefold, at_once, takeover="refuse", stream=stream, scope="route")
    first, retry = call(site, key="another"), call(site, key="another")
    assert (first.status, first.body, at_once.made[0].closed) == (500, retry.body, 1)


def test_h087_an_answer_that_breaks_off_is_not_stored_as_done(
    onefold: Onefold, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(b"a", error=ValueError("midway"))
    site = keyed(onefold, app)

    first, retry = call(site), call(site)

    assert (first.status, retry.status, app.runs, app.made[0].closed) == (500, 500, 1, 1)
    assert first.body == retry.body
    assert b"attempt_failed" in retry.body
    assert "ValueError: midway" in caplog.text


def test_h094_what_is_written_comes_before_what_is_returned(onefold: Onefold) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Any:
        write = start_response("200 OK", [])
        write(b"written ")
        return [b"returned"]

    site = keyed(onefold, app)

    assert call(site).body == b"written returned"
    assert call(site).body == b"written returned"


def test_h094_an_error_may_take_the_place_of_an_answer_that_was_begun(onefold: Onefold) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", [])
        try:
            int("oh")
        except ValueError:
            start_response("500 Oh", [], sys.exc_info())
        return [b"oh"]

    sent = call(keyed(onefold, app))

    assert (sent.starts, sent.body) == ([("500 Oh", [])], b"oh")


def test_h094_an_error_after_the_head_was_sent_is_raised(onefold: Onefold) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"half"
        yield b"of it"
        try:
            int("oh")
        except ValueError:
            start_response("500 Oh", [], sys.exc_info())

    with pytest.raises(ValueError, match="oh"):
        call(keyed(onefold, app, takeover="refuse", stream="forward"))


def test_h094_an_answer_is_begun_once(onefold: Onefold, caplog: pytest.LogCaptureFixture) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", [])
        start_response("201 Created", [])
        return []

    assert call(keyed(onefold, app)).status == 500
    assert "start_response was called twice" in caplog.text

    def silent(environ: dict[str, Any], start_response: Any) -> Any:
        return [b"x"]

    assert call(keyed(onefold, silent), key="another").status == 500
    assert "has not called start_response" in caplog.text


def test_a_head_may_be_told_with_the_first_piece(onefold: Onefold) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"late"

    for stream in ("buffer", "forward", "tombstone"):
        site = keyed(onefold, app, takeover="refuse", stream=stream, scope="route")
        assert call(site, key=stream).body == b"late"


def test_h086_what_is_forwarded_is_stored_before_its_end_is_sent(onefold: Onefold) -> None:
    app = App(b"a", b"b", b"c")
    site = keyed(onefold, app, takeover="refuse", stream="forward")
    sent = Sent()
    answered = iter(site(environ(), sent.start))

    assert [next(answered), next(answered)] == [b"a", b"b"]
    busy = call(site)
    rest = list(answered)
    retry = call(site)

    assert busy.status == 409
    assert rest == [b"c"]
    assert (retry.body, retry.header("Idempotent-Replayed")) == (b"abc", "true")
    answered.close()  # type: ignore[attr-defined]
    assert app.made[0].closed == 1


def test_h140_h141_a_client_that_leaves_midway_finds_the_whole_answer_later(
    onefold: Onefold,
) -> None:
    site = keyed(onefold, App(b"a", b"b", b"c", b"d"), takeover="refuse", stream="forward")
    answered = site(environ(), Sent().start)
    assert next(iter(answered)) == b"a"

    answered.close()  # type: ignore[attr-defined]

    assert call(site).body == b"abcd"


def test_h146_half_an_answer_is_not_ended_by_who_has_lost_the_key(onefold: Onefold) -> None:
    site = keyed(onefold, App(b"a", b"b"), takeover="refuse", stream="forward")
    answered = iter(site(environ(), Sent().start))
    next(answered)
    onefold.keys.force_release("alice", "k", surface="http")

    with pytest.raises(LeaseLost):
        list(answered)


# --- requests -------------------------------------------------------------------------------------


class Unreadable(io.RawIOBase):
    def read(self, size: int = -1) -> bytes:
        raise AssertionError("nobody has asked for it")


CHUNKED = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}


@pytest.mark.parametrize(
    ("key", "file", "more", "status"),
    [
        ('"', Unreadable(), {"CONTENT_LENGTH": "5"}, 400),
        ("k", io.BytesIO(b"12"), {"CONTENT_LENGTH": "4"}, 400),
        ("k", Unreadable(), {"CONTENT_LENGTH": "11"}, 413),
        ("k", io.BytesIO(b"x" * 11), CHUNKED, 413),
    ],
    ids=["bad key", "cut off", "too long", "too long in chunks"],
)
def test_h097_h098_h100_what_is_refused_before_or_by_its_body_claims_nothing(
    onefold: Onefold, key: str, file: Any, more: dict[str, Any], status: int
) -> None:
    app = App(b"a")

    sent = call(
        keyed(onefold, app, takeover="refuse", max_request=10),
        key=key,
        more={"wsgi.input": file, **more},
    )

    assert (sent.status, app.runs, list(onefold.keys.find())) == (status, 0, [])


@pytest.mark.parametrize("length", [10, 2 * MAX_IN_MEMORY])
def test_h096_the_application_reads_the_body_that_was_read(onefold: Onefold, length: int) -> None:
    seen: list[bytes] = []
    files: list[Any] = []

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        files.append(environ["wsgi.input"])
        seen.append(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        start_response("200 OK", [])
        return [b"ok"]

    site = keyed(onefold, app)
    body = b"x" * length

    assert call(site, body).body == b"ok"
    assert seen == [body]
    assert call(site, body).header("Idempotent-Replayed") == "true"
    assert call(site, b"y" * length).status == 422
    if length > MAX_IN_MEMORY:
        assert files[0].closed


def test_a_body_in_chunks_is_read_where_the_server_tells_its_end(onefold: Onefold) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Any:
        start_response("200 OK", [])
        return [environ["wsgi.input"].read(), environ["CONTENT_LENGTH"].encode()]

    sent = call(keyed(onefold, app), more={"wsgi.input": io.BytesIO(b"hello"), **CHUNKED})

    assert sent.body == b"hello5"


def test_h045_where_the_application_is_mounted_does_not_matter(onefold: Onefold) -> None:
    app = App(b"a")
    site = keyed(onefold, app)
    call(site, more={"SCRIPT_NAME": "/one"})

    retry = call(site, more={"SCRIPT_NAME": "/two"})

    assert (retry.header("Idempotent-Replayed"), app.runs) == ("true", 1)


def test_h047_what_an_application_does_not_know_is_no_outcome(onefold: Onefold) -> None:
    statuses = iter(["404 Not Found", "299 Fine"])

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        start_response(next(statuses), [])
        return []

    site = keyed(onefold, app)

    told = [call(site).starts[0][0] for _ in range(3)]
    assert told == ["404 Not Found", "299 Fine", "299 Unknown"], "a replay has words of its own"
