"""A client that costs as little as it can: requests made beforehand, connections kept alive."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOST: Final = "127.0.0.1"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def request(method: str, path: str, body: bytes, *headers: str) -> bytes:
    """A request as it goes over the wire."""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {HOST}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def ask_all(port: int, requests: Sequence[bytes], *, connections: int, status: bytes) -> None:
    """Send them, over so many connections; each waits for its answer."""
    rest = iter(requests)
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(_ask_on(port, rest, status))


async def ask(port: int, asked: bytes, *statuses: bytes) -> bytes:
    """One request on a connection of its own; the body of its answer."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        return await _answer(reader, writer, asked, statuses)
    finally:
        writer.close()


async def _ask_on(port: int, rest: Iterator[bytes], status: bytes) -> None:
    reader, writer = await asyncio.open_connection(HOST, port)
    for asked in rest:
        await _answer(reader, writer, asked, (status,))
    writer.close()


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    asked: bytes,
    statuses: tuple[bytes, ...],
) -> bytes:
    writer.write(asked)
    head = await reader.readuntil(b"\r\n\r\n")
    found = _LENGTH.search(head)
    body = await reader.readexactly(int(found[1])) if found else b""
    if head[9:12] not in statuses:
        raise RuntimeError(f"{statuses} was expected: {head!r} {body[:500]!r}")
    return body
