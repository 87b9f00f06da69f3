"""Another company's service: remembers the Idempotency-Key of a charge, and of nothing else.

`Partner` is the service, for as long as it is open. `order` and `find` are how a handler talks to
it, at the address in PARTNER_URL. It can lose answers: the order is executed, the connection dies.
"""

from __future__ import annotations

import json
import os
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.error import URLError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

REMEMBERS: Final = frozenset({"/charges"})
"""The doors where a key that was seen before gets the answer that it got then."""


class Ordered(NamedTuple):
    """An effect that this service had."""

    door: str
    key: str
    receipt: str


class Server(ThreadingHTTPServer):
    """Each request in a thread of its own."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that dies before it has read its answer is nothing to be told of."""


class Partner:
    """The service, on a port of this machine."""

    def __init__(self) -> None:
        """Nothing was ordered yet."""
        self.ordered: list[Ordered] = []
        self.loses: int = 0
        """How many answers to orders are lost from now on."""
        self._mutex = threading.Lock()
        self._server = Server(("127.0.0.1", 0), self._answering())
        self.url: str = f"http://127.0.0.1:{self._server.server_address[1]}"

    def order(self, door: str, key: str) -> str:
        """Have the effect, or say what it was."""
        with self._mutex:
            known = self._find(door, key) if door in REMEMBERS else None
            if known is None:
                known = f"{door.strip('/')}-{len(self.ordered) + 1}"
                self.ordered.append(Ordered(door, key, known))
            return known

    def loses_an_answer(self) -> bool:
        """True where the answer to an order that was executed does not arrive."""
        with self._mutex:
            self.loses -= 1
            return self.loses >= 0

    def find(self, door: str, key: str) -> str | None:
        """The receipt of what was ordered with this key."""
        with self._mutex:
            return self._find(door, key)

    def _find(self, door: str, key: str) -> str | None:
        found = (one.receipt for one in self.ordered if (one.door, one.key) == (door, key))
        return next(found, None)

    def _answering(self) -> type[BaseHTTPRequestHandler]:
        partner = self

        class Answering(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                receipt = partner.order(self.path, self.headers["Idempotency-Key"])
                if partner.loses_an_answer():
                    self.close_connection = True
                else:
                    self._answer(receipt)

            def do_GET(self) -> None:
                address = urlsplit(self.path)
                self._answer(partner.find(address.path, parse_qs(address.query)["key"][0]))

            def _answer(self, receipt: str | None) -> None:
                body = json.dumps({"receipt": receipt}).encode()
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - so it is called
                """Nobody reads it."""

        return Answering

    def __enter__(self) -> Self:
        """Open."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self._server.shutdown()
        self._server.server_close()


def order(door: str, cents: int, *, key: str) -> str:
    """Order something; answers with the receipt."""
    body = json.dumps({"cents": cents}).encode()
    return str(_asked(Request(_address(door), body, {"Idempotency-Key": key})))


def find(door: str, key: str) -> str | None:
    """Ask what became of an order; None where there was none."""
    return _asked(Request(f"{_address(door)}?{urlencode({'key': key})}"))


def _address(door: str) -> str:
    return os.environ["PARTNER_URL"] + door


def _asked(request: Request) -> str | None:
    try:
        with urlopen(request, timeout=10) as response:
            receipt: str | None = json.load(response)["receipt"]
    except URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            raise error.reason from None
        raise
    return receipt
