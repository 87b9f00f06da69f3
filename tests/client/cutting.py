"""A wire between a client and a server that is cut at every moment of a request, by lot.

It understands just enough of HTTP to know where a message ends. A cut is a reset of both ends: the
client cannot know what became of its request.
"""

import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

Fate = Literal["pass", "before send", "mid request", "after commit", "mid response"]

FATES: tuple[Fate, ...] = ("pass", "before send", "mid request", "after commit", "mid response")


class Cutting:
    """Listens on a port of its own, and decides about each request that comes."""

    def __init__(self, port: int, *, seed: int, passing: float = 0.4) -> None:
        self._port = port
        self._dice = random.Random(seed)
        self._passing = passing
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.fates: Counter[Fate] = Counter()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        _reset(self._listener)
        with self._lock:
            for connection in self._open:
                _reset(connection)

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    self._open.add(client)
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            _reset(client)
            return
        with self._lock:
            self._open.add(server)
        with contextlib.suppress(OSError):
            while self._exchange(client, server):
                pass
        _reset(client)
        _reset(server)

    def _exchange(self, client: socket.socket, server: socket.socket) -> bool:
        """One request and its answer; False where the connection has ended."""
        request = _message(client)
        if not request:
            return False
        fate = self._fate()
        if fate == "before send":
            return False
        if fate == "mid request":
            server.sendall(request[: self._within(request)])
            return False
        server.sendall(request)
        answer = _message(server)
        if not answer or fate == "after commit":
            return False
        if fate == "mid response":
            client.sendall(answer[: self._within(answer)])
            return False
        client.sendall(answer)
        return True

    def _fate(self) -> Fate:
        with self._lock:
            fate = "pass" if self._dice.random() < self._passing else self._dice.choice(FATES[1:])
            self.fates[fate] += 1
            return fate

    def _within(self, message: bytes) -> int:
        with self._lock:
            return self._dice.randrange(1, len(message))


def _message(connection: socket.socket) -> bytes:
    """A whole message; empty where the other end has gone before it was whole."""
    message = b""
    while b"\r\n\r\n" not in message:
        piece = connection.recv(65_536)
        if not piece:
            return b""
        message += piece
    head, _, body = message.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        piece = connection.recv(65_536)
        if not piece:
            return b""
        body += piece
    return head + b"\r\n\r\n" + body


def _reset(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def cutting(port: int, *, seed: int, passing: float = 0.4) -> Generator[Cutting]:
    """A wire that is gone afterwards."""
    wire = Cutting(port, seed=seed, passing=passing)
    try:
        yield wire
    finally:
        wire.close()
