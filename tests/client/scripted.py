"""Servers that do what a test says, or cut every wire by lot: answers, cuts, trickles, silence."""

import contextlib
import json
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from typing import Any, Literal, NamedTuple, Self


class Asked(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str | None:
        """What makes it the same request over all its tries, wherever it stands."""
        if self.method == "POST" and "idempotency-key" not in self.headers:
            found: str | None = json.loads(self.body).get("idempotencyKey")
            return found
        return self.headers.get("idempotency-key")


class Cut(NamedTuple):
    """The connection is reset after so many bytes of an answer, or after these."""

    after: int | bytes = 0


class Silence(NamedTuple):
    """Nothing is answered but the beginning of an answer, and the connection stays open."""

    after: bytes = b""


class Trickle(NamedTuple):
    """An answer that never comes to its end, byte by byte."""


class Close(NamedTuple):
    """The connection is closed in good order, after the beginning of an answer, or without one."""

    after: bytes = b""


Act = bytes | Cut | Silence | Trickle | Close


def answer(status: int, body: object = None, **headers: str) -> bytes:
    """An answer in HTTP, with a body of JSON."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(content)}"]
    if body is not None and "Content_Type" not in headers:
        lines.append("Content-Type: application/json")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + content


def problem(status: int, code: str, detail: str = "So it is.", **more: Any) -> bytes:
    """A problem as our server tells it; `Retry_After` is a header."""
    headers = {name: more.pop(name) for name in ("Retry_After", "Date") if name in more}
    body = {"status": status, "code": code, "detail": detail, "title": code, **more}
    return answer(status, body, Content_Type="application/problem+json", **headers)


class Scripted:
    """Listens; takes the next act of its script for every request that comes."""

    def __init__(self, script: Callable[[Asked], Act] | Sequence[Act]) -> None:
        self._act = script if callable(script) else _in_order(iter(script))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.asked: list[Asked] = []
        self.connections = 0
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._listener)
        with self._lock:
            for connection in self._open:
                _close(connection)

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                with self._lock:
                    self._open.add(connection)
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
            while (asked := _read(stream)) is not None:
                self.asked.append(asked)
                if not _perform(self._act(asked), connection, stream):
                    return


def _in_order(script: Iterator[Act]) -> Callable[[Asked], Act]:
    return lambda _: next(script)


def _read(stream: Any) -> Asked | None:
    line = stream.readline()
    if not line:
        return None
    method, path, _ = line.decode("latin-1").split(" ")
    headers: dict[str, str] = {}
    while (header := stream.readline().decode("latin-1").strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", "0")))
    return Asked(method, path, headers, body)


def _perform(act: Act, connection: socket.socket, stream: Any) -> bool:
    """Whether the connection goes on."""
    if isinstance(act, Cut):
        whole = answer(201, {"id": "x" * 5000})
        connection.sendall(act.after if isinstance(act.after, bytes) else whole[: act.after])
        # A reset, and no orderly end.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False
    if isinstance(act, Close):
        connection.sendall(act.after)
        return False
    if isinstance(act, Silence):
        connection.sendall(act.after)
        stream.readline()
        return False
    if isinstance(act, Trickle):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        done = threading.Event()
        while not done.wait(0.02):
            connection.sendall(b"x")
        return False
    connection.sendall(act)
    return b"onnection: close" not in act


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def refusing() -> Generator[str]:
    """The URL of a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


Fate = Literal["pass", "before send", "mid request", "after commit", "mid response"]

FATES: tuple[Fate, ...] = ("pass", "before send", "mid request", "after commit", "mid response")


class Cutting(Scripted):
    """Listens on a port of its own, and decides about each request that comes."""

    def __init__(self, port: int, *, seed: int, passing: float = 0.4) -> None:
        self._port = port
        self._dice = random.Random(seed)
        self._passing = passing
        self.fates: Counter[Fate] = Counter()
        super().__init__(self._exchange)

    def _exchange(self, asked: Asked) -> Act:
        fate = self._fate()
        if fate == "before send":
            return Cut()
        with (
            suppress(OSError, HTTPException),
            socket.create_connection(("127.0.0.1", self._port)) as server,
        ):
            server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            request = _request(asked)
            if fate == "mid request":
                server.sendall(self._beginning(request))
                return Cut()
            server.sendall(request)
            answer = _answer(server)
            if fate == "mid response":
                return Cut(self._beginning(answer))
            if fate == "pass":
                return answer
        return Cut()

    def _fate(self) -> Fate:
        with self._lock:
            fate = "pass" if self._dice.random() < self._passing else self._dice.choice(FATES[1:])
            self.fates[fate] += 1
            return fate

    def _beginning(self, message: bytes) -> bytes:
        with self._lock:
            return message[: self._dice.randrange(1, len(message))]


def _request(asked: Asked) -> bytes:
    lines = [f"{asked.method} {asked.path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in asked.headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + asked.body


def _answer(server: socket.socket) -> bytes:
    """A whole answer; an error where the server has gone before it was whole."""
    response = HTTPResponse(server)
    response.begin()
    body = response.read()
    lines = [f"HTTP/1.1 {response.status} Said"]
    lines += [f"{name}: {value}" for name, value in response.getheaders()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
