"""Server processes on loopback, and calls to them without anybody's retries in between."""

import http.client
import json
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.place import Place
from tests.http.processes.app import WHO, Scene, serve
from tests.http.scenario_site import Reply
from tests.kill import audit
from tests.kill.ledger import Ledger
from tests.kill.workers import PATIENCE, Worker, until
from tests.race.crew import processes

BODY = b'{"amount": 7}'


class Said(Reply):
    """What a client was told."""

    @property
    def receipt(self) -> dict[str, Any]:
        """What a handler has answered."""
        assert self.status == 200, self
        found: dict[str, Any] = json.loads(self.body)
        return found


class Call:
    """One request. All of it is sent but for the last byte, until it is told to go."""

    def __init__(self, port: int, path: str, key: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._connection.putrequest("POST", path)
        self._connection.putheader("Idempotency-Key", key)
        self._connection.putheader("Content-Type", "application/json")
        self._connection.putheader("Content-Length", str(len(BODY)))
        self._connection.endheaders(BODY[:-1])

    def go(self) -> "Call":
        self._connection.send(BODY[-1:])
        return self

    def answer(self) -> Said:
        """Come back with what it is told."""
        with closing(self._connection):
            response = self._connection.getresponse()
            return Said(response.status, httpx.Headers(response.getheaders()), response.read())

    def breaks(self) -> None:
        """Come back when there is nobody left to answer."""
        with closing(self._connection), pytest.raises(ConnectionError):
            self._connection.getresponse()

    def hang_up(self) -> None:
        self._connection.close()


class Server(Worker):
    """One server process."""

    def __init__(self, scene: Scene, life: Any = serve) -> None:
        self._told, told = processes().Pipe(duplex=False)
        super().__init__(life, scene, told)
        told.close()
        self._port: int | None = None
        self._calls: list[Call] = []

    @property
    def port(self) -> int:
        if self._port is None:
            assert self._told.poll(PATIENCE), "a server has not begun to listen"
            self._port = int(self._told.recv())
            self._told.close()
        return self._port

    def call(self, path: str, key: str) -> Call:
        """Send a request, and do not wait for its answer."""
        self._calls.append(Call(self.port, path, key).go())
        return self._calls[-1]

    def post(self, path: str, key: str) -> Said:
        """Send a request, and wait."""
        return self.call(path, key).answer()

    def insist(self, path: str, key: str) -> Said:
        """Send a request until nobody else is at work on it."""
        answers: list[Said] = []

        def is_over() -> bool:
            answers.append(self.post(path, key))
            said = answers[-1]
            return said.status != 409 or said.code != "in_progress"

        until(is_over, "for a key to be given up")
        return answers[-1]

    def ends(self) -> None:
        """Come back when it has ended as it was told to."""
        self._process.join(PATIENCE)
        assert self._process.exitcode in {0, -signal.SIGTERM}, self._process.exitcode

    def clean_up(self) -> None:
        """Whatever is left of it, and of what nobody has waited for."""
        super().clean_up()
        for call in self._calls:
            call.hang_up()


class Site:
    """A database, a ledger, and the servers of one test."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.ledger = Ledger(folder / "ledger")
        self.gate = folder / "gate"
        self._scene = Scene(place, self.ledger)
        self._servers: list[Server] = []
        audit.install(place)

    def start(self, *, life: Any = serve, **changes: Any) -> Server:
        """A server; the scene is what is said, and nobody waits at its gate unless that is."""
        self._servers.append(Server(self._scene._replace(**changes), life))
        return self._servers[-1]

    def held(self, path: str, key: str, **changes: Any) -> tuple[Server, Call]:
        """A server with a request of which the handler has come to the gate."""
        scene = self._scene._replace(gate=self.gate, **changes)
        server = self.start(gate=self.gate, **changes)
        call = server.call(path, key)
        until(lambda: self.ledger.count(scene.at), f"for a handler that has {scene.at}")
        return server, call

    def open_gate(self) -> None:
        self.gate.touch()

    def lease(self, key: str) -> tuple[int, int]:
        """When a lease ends, and the time now, in microseconds of the database's clock."""
        clock = (
            "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
            if self.place.on_postgres
            else "cast((julianday('now') - 2440587.5) * 86400000000 as integer)"
        )
        query = f"select lease_until, {clock} from {{claim}} where surface = 'http'"
        ((until_then, now),) = self.place.rows(f"{query} and scope = '{WHO}' and key = '{key}'")
        return int(until_then), int(now)

    def effects(self) -> list[tuple[str, int]]:
        """What was committed: which key, by which attempt."""
        table = self.place.effects
        return [(key, fence) for key, fence in self.place.rows("select * from {e}", e=table)]

    def close(self) -> None:
        for server in self._servers:
            server.clean_up()


@pytest.fixture
def site(place: Place, tmp_path: Path) -> Iterator[Site]:
    """Each database in turn."""
    made = Site(place, tmp_path)
    yield made
    made.close()
