"""Push jobs to an endpoint: by `onefold serve`, and by the bare client."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import aiohttp

from bench.contestants import server_client, server_process
from bench.payloads import encode, payload
from onefold import NewJob, Onefold

if TYPE_CHECKING:
    from bench.stopwatch import Stopwatch
    from bench.values import Order

QUEUE: Final = "/v1/queues/payments"
AT_ONCE: Final = 64
"""Posts of the bare client at once: as many as a queue of ours has."""
PATIENCE: Final = 120.0


def ours(order: Order, watch: Stopwatch) -> None:
    """All jobs are there before the server starts; counted by the endpoint."""
    url = server_process.prepared(order)
    endpoint, port = server_process.free_port(), server_process.free_port()
    with server_process.running(("bench.contestants.server_endpoint", str(endpoint)), endpoint):
        _publish(order, url, endpoint)
        serve = ("onefold", "serve", "--database", url, "--port", str(port), "--no-access-log")
        allowed = ("--push-allow", "127.0.0.0/8", "--push")
        with server_process.running((*serve, *allowed), port) as process:
            resume = server_client.request("POST", f"{QUEUE}/resume", b"")

            async def run() -> None:
                with watch.running(order.jobs, process.cpu_seconds):
                    await server_client.ask(port, resume, b"200")
                    await _counted(endpoint, order.jobs)

            asyncio.run(run())


def bare(order: Order, watch: Stopwatch) -> None:
    """aiohttp, with as many posts at once, and nothing to read or to store."""
    endpoint = server_process.free_port()
    body = encode({"id": "0199f0a1-7d1c-7abc-8def-0123456789ab", "payload": payload(0)})
    with server_process.running(("bench.contestants.server_endpoint", str(endpoint)), endpoint):

        async def run() -> None:
            connector = aiohttp.TCPConnector(limit=AT_ONCE)
            async with aiohttp.ClientSession(connector=connector) as session:
                await _post_all(session, endpoint, body, 500)
                with watch.running(order.jobs):
                    await _post_all(session, endpoint, body, order.jobs)

        asyncio.run(run())


async def _post_all(session: aiohttp.ClientSession, endpoint: int, body: bytes, count: int) -> None:
    rest = iter(range(count))
    headers = {"content-type": "application/json"}

    async def post() -> None:
        for _ in rest:
            url = f"http://127.0.0.1:{endpoint}/hook"
            async with session.post(url, data=body, headers=headers) as answer:
                await answer.read()

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(post())


def _publish(order: Order, url: str, endpoint: int) -> None:
    """A paused queue with all jobs in it."""
    from onefold.model.queue import QueueSettings

    with Onefold(url) as onefold:
        address = f"http://127.0.0.1:{endpoint}/hook"
        onefold.queues.save("payments", QueueSettings(endpoint=address))
        onefold.queues.pause("payments")
        jobs = [
            NewJob("payments", payload(number), queue="payments") for number in range(order.jobs)
        ]
        onefold.enqueue_many(jobs)


async def _counted(endpoint: int, wanted: int) -> None:
    deadline = time.monotonic() + PATIENCE
    ask = server_client.request("GET", "/count", b"")
    while int(await server_client.ask(endpoint, ask, b"200")) < wanted:
        if time.monotonic() > deadline:
            raise RuntimeError("The jobs are not delivered.")
        await asyncio.sleep(0.01)
