"""Server processes that are told to end, and those that were forked from others."""

import asyncio
import os
import signal
import socket
import threading
from multiprocessing.connection import Connection

import httpx
import pytest

from tests.fixtures.patience import LOCK
from tests.http.processes.app import Scene, build, run
from tests.http.processes.site import BODY, Server, Site
from tests.kill.workers import end_with_the_run, until


def told_to_end(server: Server) -> None:
    """SIGTERM, and come back when nobody is let in any more."""
    server.signal(signal.SIGTERM)

    def is_closed() -> bool:
        try:
            socket.create_connection(("127.0.0.1", server.port)).close()
        except ConnectionError:
            return True
        return False

    until(is_closed, "for the server to close its door")


@pytest.mark.parametrize("path", ["/joined", pytest.param("/refuse", marks=pytest.mark.prove)])
def test_h155_what_has_begun_comes_to_its_end(site: Site, path: str) -> None:
    server, call = site.held(path, "k", lease=LOCK)

    told_to_end(server)
    site.open_gate()

    told = call.answer()
    assert told.receipt
    server.ends()
    again = site.start().post(path, "k")
    assert (again.body, again.is_replay) == (told.body, True)


@pytest.mark.prove
@pytest.mark.parametrize("path", ["/joined", "/refuse"])
def test_h155_also_what_nobody_waits_for_any_more(site: Site, path: str) -> None:
    server, call = site.held(path, "k", lease=LOCK)

    call.hang_up()
    told_to_end(server)
    site.open_gate()

    server.ends()
    assert site.start().post(path, "k").is_replay
    assert site.ledger.count("began") == 1


def fork(scene: Scene, told: Connection) -> None:
    """Begin a request, fork in the middle of it, and serve as the child with all that was there."""
    onefold = scene.place.open()
    app = build(scene, onefold)

    async def post() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            headers = {"Idempotency-Key": "parents", "Content-Type": "application/json"}
            await client.post("/rerun", content=BODY, headers=headers)

    request = threading.Thread(target=lambda: asyncio.run(post()))
    request.start()
    until(lambda: scene.ledger.count("began"), "for the handler to begin")
    if os.fork() == 0:
        threading.Thread(target=end_with_the_run, daemon=True).start()
        scene.ledger.note("forked", value=os.getpid())
        run(app, told)
        os._exit(0)
    request.join()


def test_h156_a_forked_process_does_not_own_what_its_parent_has_claimed(site: Site) -> None:
    """H148: it has a heart of its own, which keeps what is the child's, and nothing else."""
    parent = site.start(life=fork, gate=site.gate)
    assert parent.port
    (forked,) = site.ledger.lines("forked")
    try:
        parent.kill()
        own = parent.call("/rerun", "childs")
        until(lambda: site.ledger.count("began") == 2, "for the child's handler to begin")
        ends, _ = site.lease("childs")
        until(lambda: site.lease("childs")[1] > ends, "for the first leases to end")
        busy = parent.post("/rerun", "childs")
        site.open_gate()
        told = own.answer()
        taken = parent.post("/rerun", "parents")
    finally:
        os.kill(int(forked.value), signal.SIGKILL)

    assert (busy.status, busy.code) == (409, "in_progress")
    first, second, third = (line.fence for line in site.ledger.lines("began"))
    assert first < second == told.receipt["fence"]
    assert first < third == taken.receipt["fence"]
