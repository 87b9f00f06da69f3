"""The world of the demo: senders that repeat themselves, and workers that are killed.

Every purchase is requested several times: at the same time, again later, and by clients that hang
up before the response. The same is done to the shop with Onefold and to the one without.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import sqlite3
import sys
from collections import Counter
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import aiohttp
import msgspec

from onefold.cli.demo import shop
from onefold.errors import UsageError
from onefold.testing.chaos import WorkerProcess
from onefold.web.webhooks.signing import sign

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

Surface: TypeAlias = Literal["API", "form", "webhook", "job"]
SURFACES: Final[tuple[Surface, ...]] = ("API", "form", "webhook", "job")

PAUSE: Final = 0.05
AT_ONCE: Final = 16
"""Purchases at the same time."""
COPIES: Final = (1, 9)
"""Requests for one purchase."""
HANGS_UP: Final = 0.1
"""The share of the clients that hang up."""
SOON: Final = 0.02
"""Seconds until a client hangs up, at most; and between two requests."""
TRIES: Final = 50
WORKERS: Final = 2
WORKER: Final = (
    "onefold.cli.demo.shop:onefold", "--lease=1s", "--concurrency=4", "--prefetch=0"
)  # fmt: skip
PLAIN_WORKER: Final = "from onefold.cli.demo.shop import run_plain_worker as run; run()"
KILLS: Final = 25
"""Kills on each side, at most."""
LEAST: Final = 5
"""Jobs between two kills, at least."""
STARTED: Final = 60.0
"""Seconds for the server to start."""
QUIET: Final = 15.0
"""Seconds without progress after which the rest counts as lost."""


class Effects(msgspec.Struct, frozen=True):
    """What became of the purchases on one side."""

    wanted: int
    done: int
    different: int

    @property
    def doubled(self) -> int:
        """How often something was done again."""
        return self.done - self.different

    @property
    def lost(self) -> int:
        """Purchases that have no effect, so far."""
        return self.wanted - self.different

    def __add__(self, other: Effects) -> Effects:
        """Both together."""
        return Effects(
            self.wanted + other.wanted, self.done + other.done, self.different + other.different
        )


class World:
    """Senders and workers, and what they have caused."""

    def __init__(self, port: int, count: int) -> None:
        """`count` purchases, one after the other on each surface."""
        self.url: str = f"http://127.0.0.1:{port}"
        self.requested: Counter[Surface] = Counter()
        self.wanted: Counter[Surface] = Counter()
        self.kills: int = 0
        self.with_onefold: Path = shop.WITH
        self.without: Path = shop.WITHOUT
        self._count = count
        self._random = random.Random()
        self._port = port

    def tallies(self, path: Path) -> dict[Surface, Effects]:
        """What a shop has done, by surface."""
        query = "select surface, count(*), count(distinct purchase) from effect group by 1"
        with closing(sqlite3.connect(path, timeout=shop.PATIENCE)) as connection:
            found = {surface: (done, many) for surface, done, many in connection.execute(query)}
        return {each: Effects(self.wanted[each], *found.get(each, (0, 0))) for each in SURFACES}

    # --- the processes --------------------------------------------------------------------------

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[aiohttp.ClientSession]:
        """Start the server, and stop it at the end."""
        command = [sys.executable, "-m", "onefold.cli.demo.shop", str(self._port)]
        server = WorkerProcess(command, "onefold-demo")
        try:
            async with aiohttp.ClientSession(self.url) as session:
                await _started(session, server)
                yield session
        finally:
            server.stop()
            await asyncio.to_thread(server.wait)

    @asynccontextmanager
    async def workers(self) -> AsyncGenerator[None]:
        """Workers of both shops. From time to time one of them is killed and replaced."""
        sides = [
            (
                self.with_onefold,
                ["-m", "onefold", "worker", *WORKER, f"--as-process=1:{os.getpid()}"],
            ),
            (self.without, ["-c", PLAIN_WORKER]),
        ]
        running = {
            path: [_started_worker(command) for _ in range(WORKERS)] for path, command in sides
        }

        async def kill_some() -> None:
            # After some progress, so that new workers have the time to start.
            killed_at = Counter[Path]()
            while True:
                await asyncio.sleep(PAUSE)
                for path, command in sides:
                    done = self.tallies(path)["job"].different
                    if done - killed_at[path] >= max(self._count // len(SURFACES) // KILLS, LEAST):
                        killed_at[path] = done
                        running[path].pop(0).kill()
                        running[path].append(_started_worker(command))
                        self.kills += 1

        killing = asyncio.create_task(kill_some())
        try:
            yield
        finally:
            killing.cancel()
            for worker in chain.from_iterable(running.values()):
                worker.kill()

    # --- the requests ---------------------------------------------------------------------------

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Make all requests, and wait until no job is left, or nothing happens any more."""
        await session.put(f"/v1/queues/{shop.SHIPMENTS}", json={})
        limit = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for number in range(self._count):
                await limit.acquire()
                sending = self._purchase(session, SURFACES[number % len(SURFACES)], number)
                group.create_task(sending).add_done_callback(lambda _: limit.release())
        last, waited = -1, 0.0
        while waited < QUIET:
            tallies = [
                *self.tallies(self.with_onefold).values(),
                *self.tallies(self.without).values(),
            ]
            done = sum(each.done for each in tallies)
            waited = 0.0 if done > last else waited + PAUSE
            if not any(each.lost for each in tallies):
                return
            last = done
            await asyncio.sleep(PAUSE)

    async def _purchase(
        self, session: aiohttp.ClientSession, surface: Surface, number: int
    ) -> None:
        """Request one purchase several times, on both sides. The last client is patient."""
        self.wanted[surface] += 1
        request = await _REQUESTS[surface](session, f"purchase-{number}")
        copies = self._random.randint(*COPIES)
        together = self._random.randrange(copies)
        await asyncio.gather(*(self._copy(session, surface, request) for _ in range(together)))
        for _ in range(copies - together - 1):
            await asyncio.sleep(self._random.random() * SOON)
            await self._copy(session, surface, request)
        await self._copy(session, surface, request, patient=True)

    async def _copy(
        self,
        session: aiohttp.ClientSession,
        surface: Surface,
        request: _Request,
        *,
        patient: bool = False,
    ) -> None:
        """Send a request to both shops, until there is a response or the client hangs up."""
        self.requested[surface] += 1
        hangs_up = not patient and self._random.random() < HANGS_UP
        for path, options in request:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._random.random() * SOON if hangs_up else None):
                    await _sent(session, path, options)


_Request: TypeAlias = "tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]"
"""The path and the options of a request, with Onefold and without."""


async def _sent(session: aiohttp.ClientSession, path: str, options: dict[str, Any]) -> None:
    """Send a request, again while the server is busy with another one."""
    for _ in range(TRIES):
        with suppress(aiohttp.ClientError):
            async with session.post(path, allow_redirects=False, **options) as response:
                if response.ok:
                    return
        await asyncio.sleep(PAUSE)


async def _api(_: aiohttp.ClientSession, purchase: str) -> _Request:
    headers = {"Idempotency-Key": purchase}
    body = {"purchase": purchase}
    return ("/with/orders", {"json": body, "headers": headers}), _plain("orders", purchase)


async def _form(session: aiohttp.ClientSession, purchase: str) -> _Request:
    cookies = {"cookie": f"session={purchase}"}
    async with session.get("/with/form", headers=cookies) as page:
        found = re.search('name="([^"]+)" value="([^"]+)"', await page.text())
    assert found is not None
    fields = {found[1]: found[2], "purchase": purchase}
    return ("/with/form", {"data": fields, "headers": cookies}), _plain("form", purchase)


async def _webhook(_: aiohttp.ClientSession, purchase: str) -> _Request:
    body = msgspec.json.encode({"purchase": purchase})
    headers = dict(sign(shop.SECRET, id=purchase, body=body, now=datetime.now(UTC)))
    return ("/with/hooks", {"data": body, "headers": headers}), _plain("hooks", purchase)


async def _job(_: aiohttp.ClientSession, purchase: str) -> _Request:
    body = {"payload": {"purchase": purchase}, "kind": "ship", "idempotencyKey": purchase}
    return (f"/v1/queues/{shop.SHIPMENTS}/jobs", {"json": body}), _plain("jobs", purchase)


def _plain(route: str, purchase: str) -> tuple[str, dict[str, Any]]:
    return f"/without/{route}", {"params": {"purchase": purchase}}


_REQUESTS: Final[dict[Surface, Callable[..., Awaitable[_Request]]]] = {
    "API": _api,
    "form": _form,
    "webhook": _webhook,
    "job": _job,
}


def _started_worker(command: list[str]) -> WorkerProcess:
    return WorkerProcess([sys.executable, *command], "onefold-demo")


async def _started(session: aiohttp.ClientSession, server: WorkerProcess) -> None:
    """Wait until the server responds."""
    async with asyncio.timeout(STARTED):
        while True:
            if server.status is not None:
                raise UsageError(f"The server of the demo ended with status {server.status}.")
            with suppress(aiohttp.ClientError):
                async with session.get("/readyz") as response:
                    if response.ok:
                        return
            await asyncio.sleep(PAUSE)
