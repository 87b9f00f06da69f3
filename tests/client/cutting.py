"""A wire between a client and a server that is cut at every moment of a request, by lot.

A cut is a reset of both ends: the client cannot know what became of its request.
"""

import random
import socket
import struct
from collections import Counter
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from typing import Literal

from tests.client.scripted import Act, Asked, Cut, Scripted

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
