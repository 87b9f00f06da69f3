"""A client that listens: one request, whose answer is read piece by piece."""

import asyncio
import json
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.fixtures.patience import HANG
from tests.fixtures.served import Api


class Told(NamedTuple):
    """One event of a stream."""

    id: str | None
    name: str
    data: Any


class Stream:
    """`async with Stream(api): …` listens until the block is left."""

    def __init__(self, api: Api, query: str = "", *, stalled: bool = False, **headers: str) -> None:
        self._api = api
        self._query = query
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._headers = {"host": "localhost", **named}
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._text = ""
        self._gone = asyncio.Event()
        self.reads = asyncio.Event()
        if not stalled:
            self.reads.set()
        self.status = 0
        self.headers: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gone.set()
        await asyncio.wait_for(self._task, HANG)

    async def _run(self) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/v1/events",
            "raw_path": b"/v1/events",
            "root_path": "",
            "query_string": self._query.encode(),
            "headers": [(n.encode(), v.encode()) for n, v in self._headers.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000),
            "state": {},
        }
        await self._api.app(scope, self._receive, self._send)
        self._pieces.put_nowait(None)

    async def _receive(self) -> Any:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {n.decode(): v.decode() for n, v in message["headers"]}
            return
        await self.reads.wait()
        self._pieces.put_nowait(message["body"])

    async def piece(self) -> str | None:
        """One block of lines; None at the end."""
        while "\n\n" not in self._text:
            got = await asyncio.wait_for(self._pieces.get(), HANG)
            if got is None:
                return None
            self._text += got.decode()
        block, _, self._text = self._text.partition("\n\n")
        return block

    async def event(self) -> Told:
        """The next event; comments are passed over."""
        while True:
            block = await self.piece()
            assert block is not None, "the stream has ended"
            fields = dict(line.split(": ", 1) for line in block.split("\n") if line[0] != ":")
            if "event" in fields:
                return Told(fields.get("id"), fields["event"], json.loads(fields["data"]))
