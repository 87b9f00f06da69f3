"""The framework alone: Starlette reads the same request with msgspec and answers the same JSON."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from granian.constants import HTTPModes, Interfaces
from granian.server import Server
from starlette.requests import Request  # noqa: TC002 - read from the annotation
from starlette.responses import Response
from starlette.routing import Route, Router


class Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What is published."""

    payload: dict[str, Any]
    idempotency_key: str | None = None


class Published(msgspec.Struct, rename="camel"):
    """What is answered."""

    id: str
    status: str
    created_at: str
    duplicate: bool = False
    mismatch: bool = False
    replaced: bool = False
    state: str = "ready"


_decode = msgspec.json.Decoder(Body).decode
_encode = msgspec.json.Encoder().encode


async def publish(request: Request) -> Response:
    """As if it had been stored."""
    body = _decode(await request.body())
    assert body.idempotency_key is not None
    answer = Published(
        id="0199f0a1-7d1c-7abc-8def-0123456789ab",
        status="pending",
        created_at="2026-01-01T00:00:00.000Z",
    )
    return Response(_encode(answer), 201, media_type="application/json")


app = Router(routes=[Route("/v1/queues/{name}/jobs", publish, methods=["POST"])])


def main() -> None:
    """Serve as `onefold serve` does."""
    Server(
        "bench.contestants.server_bare:app",
        port=int(sys.argv[1]),
        interface=Interfaces.ASGI,
        http=HTTPModes.auto,
        websockets=False,
        log_enabled=False,
    ).serve()


if __name__ == "__main__":
    main()
