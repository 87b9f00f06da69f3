"""Publish over HTTP: to `onefold serve`, and to the bare framework that answers the same JSON."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from bench.contestants import server_client, server_process
from bench.payloads import batches, encode, payload
from onefold import Onefold

if TYPE_CHECKING:
    from bench.stopwatch import Stopwatch
    from bench.values import Order

WARM: Final = 500
QUEUE: Final = "/v1/queues/payments"


def ours(order: Order, watch: Stopwatch) -> None:
    """`onefold serve`, one process; pushing is another measurement."""
    url, port = server_process.prepared(order), server_process.free_port()
    headers = [f"Authorization: Bearer {_key(url)}"] if order.number("authorized") else []
    command = ("onefold", "serve", "--database", url, "--port", str(port), "--no-push")
    with server_process.running(command, port) as process:
        made = server_client.request("PUT", QUEUE, b"{}", *headers)
        asyncio.run(server_client.ask(port, made, b"201"))
        stored = _publish(order, watch, process, headers)
    with Onefold(url) as onefold:
        found = sum(queue.counts.ready for queue in onefold.queues.find() if queue.counts)
    if found != stored:
        raise RuntimeError(f"{stored} jobs were answered for, and {found} are there.")


def bare(order: Order, watch: Stopwatch) -> None:
    """Starlette, msgspec and granian, without a database."""
    port = server_process.free_port()
    command = ("bench.contestants.server_bare", str(port))
    with server_process.running(command, port) as process:
        _publish(order, watch, process, [])


def _key(url: str) -> str:
    with Onefold(url) as onefold:
        return onefold.api_keys.create(tenant="acme", scopes=["publish", "admin"]).text


def _publish(
    order: Order, watch: Stopwatch, process: server_process.Process, headers: list[str]
) -> int:
    """Publish them all; answers how many."""
    batch = order.number("batch")
    total = order.jobs + (batch or WARM)
    jobs = [_job(number) for number in range(total)]
    if batch:
        bodies = [encode({"items": some}) for some in batches(jobs, batch)]
        path, status, warm = f"{QUEUE}/jobs/batch", b"201", 1
    else:
        bodies, path, status, warm = [encode(job) for job in jobs], f"{QUEUE}/jobs", b"201", WARM
    requests = [server_client.request("POST", path, body, *headers) for body in bodies]

    async def run() -> None:
        connections = order.number("connections")
        await server_client.ask_all(
            process.port, requests[:warm], connections=connections, status=status
        )
        with watch.running(order.jobs, process.cpu_seconds):
            await server_client.ask_all(
                process.port, requests[warm:], connections=connections, status=status
            )

    asyncio.run(run())
    return total


def _job(number: int) -> dict[str, Any]:
    return {"payload": payload(number), "idempotencyKey": f"order:{number}:charge"}
