"""Clients of HTTP/2 that ask for much and read little."""

import asyncio
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from onefold.server.deadlines import Deadlines
from onefold.server.unread_responses import AT_ONCE, PIECE, NotRead, Unread
from tests.fixtures.place import Place
from tests.fixtures.serving import HOST, Serving
from tests.kill.workers import PATIENCE
from tests.server.processes.conftest import Serve

PATH = "/v1/openapi.json"
STREAMS = 90
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW = 0, 1, 3, 4, 6, 8
END = 1
"""Of a stream, and also: that a frame of settings or a ping is an answer."""


class Client:
    """A connection of HTTP/2 whose frames are made by hand."""

    def __init__(self, server: Serving, *, window: int) -> None:
        self._socket = socket.create_connection((HOST, server.port), timeout=PATIENCE)
        self._stream = self._socket.makefile("rb")
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.send(SETTINGS, 0, 0, b"\0\4" + window.to_bytes(4, "big"))

    def ask(self, streams: int) -> None:
        path = PATH.encode()
        block = b"\x82\x86\x04" + bytes([len(path)]) + path + b"\x41\x09localhost"
        for number in range(streams):
            self.send(HEADERS, 4 + END, 2 * number + 1, block)

    def make_room(self, size: int, stream: int = 0) -> None:
        self.send(WINDOW, 0, stream, size.to_bytes(4, "big"))

    def send(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        head = len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
        self._socket.sendall(head + content)

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and content, until the server closes."""
        while len(head := self._stream.read(9)) == 9:
            content = self._stream.read(int.from_bytes(head[:3], "big"))
            yield head[3], head[4], int.from_bytes(head[5:], "big"), content

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


@pytest.fixture
def server(sqlite_place: Place, serve: Serve) -> Serving:
    return serve(sqlite_place, "--no-push", "--no-access-log", "--request-timeout", "3s")


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connected(clients: ExitStack, server: Serving, *, window: int) -> Client:
    client = Client(server, window=window)
    clients.callback(client.close)
    return client


def test_a_client_that_reads_gets_every_answer_whole(server: Serving, clients: ExitStack) -> None:
    """More at once than are under way at once."""
    expected = server.ask("GET", PATH).body
    client = connected(clients, server, window=2**20)
    client.make_room(2**30)
    client.ask(3 * AT_ONCE)

    bodies: dict[int, bytes] = {}
    ended: set[int] = set()
    for kind, flags, stream, content in client.frames():
        assert kind != RESET
        if kind == DATA:
            assert content or flags & END, "proxies take empty frames for an attack"
            bodies[stream] = bodies.get(stream, b"") + content
            ended |= {stream} if flags & END else set()
        if len(ended) == 3 * AT_ONCE:
            break

    assert set(bodies.values()) == {expected}


@pytest.mark.prove
def test_a_client_that_reads_late_gets_its_answer(server: Serving, clients: ExitStack) -> None:
    expected = server.ask("GET", PATH).body
    client = connected(clients, server, window=0)
    client.make_room(2**30)
    client.ask(1)

    body = b""
    for kind, flags, stream, content in client.frames():
        if kind == HEADERS:
            client.make_room(2**20, stream)
        if kind == DATA:
            body += content
            if flags & END:
                break

    assert body == expected


@pytest.mark.prove
@pytest.mark.parametrize("window", [0, 1, 5000])
def test_answers_that_are_not_read_wait_outside_and_not_for_ever(
    server: Serving, clients: ExitStack, window: int
) -> None:
    size = len(server.ask("GET", PATH).body)
    before = memory(server)
    asking = [connected(clients, server, window=window) for _ in range(6)]
    for client in asking:
        client.ask(STREAMS)
        client.send(PING, 0, 0, b"\0" * 8)
    for client in asking:
        # All of its requests have come in; and those of all have begun when another is answered.
        assert any(kind == PING and flags & END for kind, flags, *_ in client.frames())
    assert server.ask("GET", "/healthz").status == 200
    grown = memory(server) - before

    assert grown < 6 * STREAMS * size / 3
    # Each connection has begun a few answers, and is closed because it takes none of them.
    for client in asking:
        begun = sum(kind == HEADERS for kind, *_ in client.frames())
        assert begun <= AT_ONCE
    assert server.ask("GET", PATH).status == 200


TRIES_TO_WRITE = """
import sqlite3, sys
sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute("begin immediate")
"""


@pytest.mark.prove
def test_closing_a_connection_keeps_the_locks_of_sqlite(tmp_path: Path) -> None:
    """A process that closes a copy of a file's descriptor loses its locks on the file."""
    file = tmp_path / "app.db"
    database = sqlite3.connect(file, isolation_level=None)
    database.execute("pragma journal_mode = wal")
    database.execute("begin immediate")
    listener = socket.create_server((HOST, 0))
    client = socket.create_connection(listener.getsockname(), timeout=PATIENCE)
    accepted, address = listener.accept()

    async def never(_: object) -> None:
        await asyncio.Event().wait()

    async def send_to_a_client_that_does_not_read() -> None:
        scope = {"http_version": "2", "client": address, "server": listener.getsockname()}
        send = Unread(Deadlines(), 0).paced(scope, never)
        await send({"type": "http.response.body", "body": b"." * 2 * PIECE})

    with database, listener, client, accepted:
        with pytest.raises(NotRead):
            asyncio.run(send_to_a_client_that_does_not_read())
        assert client.recv(1) == b""
        other = subprocess.run(
            [sys.executable, "-c", TRIES_TO_WRITE, file], capture_output=True, check=False
        )
    database.close()

    assert b"database is locked" in other.stderr


def memory(server: Serving) -> int:
    """Bytes of the process that serves, where Linux can say."""
    if not Path("/proc").exists():
        return 0
    status = Path(f"/proc/{_child(server)}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def _child(server: Serving) -> int:
    (found,) = [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and _parent(folder) == server.pid
    ]
    return found


def _parent(folder: Path) -> int | None:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
