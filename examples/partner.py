"""The service of a third party. It supports the Idempotency-Key of a charge, and no other.

`Partner` is the service; it runs while it is open. Handlers call it with `order` and `find`, at the
address in PARTNER_URL. It can lose responses: the order is executed, then the connection is cut.
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
"""Paths on which a repeated key receives the first response."""


class Ordered(NamedTuple):
    """An executed order."""

    door: str
    key: str
    receipt: str


class Server(ThreadingHTTPServer):
    """Handles each request in its own thread."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore callers that disconnect before they have read the response."""


class Partner:
    """The service, on a local port."""

    def __init__(self) -> None:
        """Start without orders."""
        self.ordered: list[Ordered] = []
        self.loses: int = 0
        """How many of the next responses are lost."""
        self._mutex = threading.Lock()
        self._server = Server(("127.0.0.1", 0), self._answering())
        self.url: str = f"http://127.0.0.1:{self._server.server_address[1]}"

    def order(self, door: str, key: str) -> str:
        """Execute the order, or return the receipt of the first one."""
        with self._mutex:
            known = self._find(door, key) if door in REMEMBERS else None
            if known is None:
                known = f"{door.strip('/')}-{len(self.ordered) + 1}"
                self.ordered.append(Ordered(door, key, known))
            return known

    def loses_an_answer(self) -> bool:
        """Whether the response to the executed order is lost."""
        with self._mutex:
            self.loses -= 1
            return self.loses >= 0

    def find(self, door: str, key: str) -> str | None:
        """Return the receipt of the order with this key."""
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

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
                """Log nothing."""

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
    """Place an order and return the receipt."""
    body = json.dumps({"cents": cents}).encode()
    return str(_asked(Request(_address(door), body, {"Idempotency-Key": key})))


def find(door: str, key: str) -> str | None:
    """Return the receipt of an order, or None if it does not exist."""
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
