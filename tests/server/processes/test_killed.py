"""A server that is killed under load: what a client was told is so."""

import asyncio
import json
from itertools import count

import pytest

from tests.fixtures.place import Place
from tests.fixtures.proof import repetitions
from tests.fixtures.serving import HOST, Serving
from tests.server.processes.conftest import Serve

CLIENTS = 8
DEATHS = repetitions(2, soak=60)
TOLD = repetitions(60, soak=400)
"""Answers between two deaths."""


@pytest.mark.timeout(3600)
def test_every_201_that_a_client_saw_is_in_the_database(place: Place, serve: Serve) -> None:
    server = serve(place, "--processes", "2", "--no-access-log")
    server.ask("PUT", "/v1/queues/payments", b"{}")
    numbers = count()
    seen: dict[str, str] = {}

    for _ in range(DEATHS):
        asyncio.run(_publish_until_death(server, numbers, seen))
        server.start()

    stored = {row[0] for row in place.rows("select id from {job}")}
    assert {str(job_id) for job_id in stored} >= set(seen.values())
    assert len(seen) >= DEATHS * TOLD
    # What was in flight at a death may be stored or not; sent again it is stored, and once.
    for key in list(seen)[-20:]:
        again = server.ask("POST", "/v1/queues/payments/jobs", _job(key))
        assert (again.status, again.json["id"]) == (200, seen[key])


def _job(key: str) -> dict[str, object]:
    return {"payload": {"key": key}, "idempotencyKey": key}


async def _publish_until_death(
    server: Serving, numbers: "count[int]", seen: dict[str, str]
) -> None:
    """Clients publish as fast as they can; the server dies when enough has been answered."""
    wanted, enough = len(seen) + TOLD, asyncio.Event()

    async def publish() -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        try:
            while True:
                key = f"order:{next(numbers)}"
                writer.write(_request(key))
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
                body = await reader.readexactly(length)
                assert head[9:12] == b"201", (head, body)
                seen[key] = json.loads(body)["id"]
                if len(seen) >= wanted:
                    enough.set()
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()

    tasks = [asyncio.create_task(publish()) for _ in range(CLIENTS)]
    await enough.wait()
    await asyncio.to_thread(server.kill)
    await asyncio.gather(*tasks)


def _request(key: str) -> bytes:
    body = json.dumps(_job(key)).encode()
    head = (
        "POST /v1/queues/payments/jobs HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
