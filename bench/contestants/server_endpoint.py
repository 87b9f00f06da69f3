"""An endpoint that costs as little as it can: every request is answered 200, and counted."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
COUNT: Final = b"GET /count "


class Endpoint(asyncio.Protocol):
    """One connection. Requests are separated by their length."""

    count = 0

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer what is whole."""
        rest = self._rest + data
        while (end := rest.find(b"\r\n\r\n")) >= 0:
            head = rest[:end].lower()
            place = head.find(b"content-length:")
            length = 0 if place < 0 else int(head[place + 15 :].split(b"\r\n", 1)[0])
            if len(rest) < end + 4 + length:
                break
            if rest.startswith(COUNT):
                self._tell()
            else:
                Endpoint.count += 1
                self._transport.write(ANSWER)
            rest = rest[end + 4 + length :]
        self._rest = rest

    def _tell(self) -> None:
        body = str(Endpoint.count).encode()
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        )


async def main() -> None:
    """Listen until it is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Endpoint, "127.0.0.1", int(sys.argv[1]), backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
