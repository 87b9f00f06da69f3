"""Answers that go on: sent piece by piece, until they end or their client has gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from onefold.surfaces.http.answer import asgi_headers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from onefold.server.asking import Said
    from onefold.server.incoming import Receive, Send


async def send_stream(receive: Receive, send: Send, said: Said, *, request_id: str) -> None:
    """Send what an endpoint gives; its body is an async generator of bytes."""
    headers = [
        (b"x-request-id", request_id.encode("latin-1")),
        (b"cache-control", b"no-store"),
        *asgi_headers(said.headers),
    ]
    await send({"type": "http.response.start", "status": said.status, "headers": headers})
    body = cast("AsyncGenerator[bytes]", said.body)
    sending = asyncio.create_task(_send_all(send, body))
    leaving = asyncio.create_task(_left(receive))
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
        await body.aclose()


async def _send_all(send: Send, body: AsyncGenerator[bytes]) -> None:
    async for part in body:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    """Until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
