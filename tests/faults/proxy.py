"""A wire between a client and PostgreSQL that a test can cut.

It forwards bytes. When it is told to lose the next answer to a commit, it lets the commit through,
waits until the server has answered, and cuts both ends without passing the answer on: the client
cannot know what became of its commit. When it is told to forget listeners, it reads what comes
and passes nothing on: neither end hears that the other is gone.
"""

import contextlib
import re
import socket
import threading
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

WRITES = re.compile(rb"insert into|\bupdate [^ ]*claim|\bupdate [^ ]*job as j\s+set\s+state = 1,")
REPORTS = re.compile(rb"(insert into|delete from) [^ ]*\.(worker|statistic)\b")


class Proxy:
    """Listens on a port of its own; every connection gets one to the server behind it."""

    def __init__(self, server_url: str) -> None:
        self._parts = conninfo_to_dict(server_url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._wires: list[Wire] = []
        self._lock = threading.Lock()
        self._losing = 0
        self._swallowing = False
        self._swallowed: tuple[socket.socket, bytes] | None = None
        self._hangs_up = False
        self._only_transactions = False
        self._only_with = b""
        self._refusing = False
        self._flows = threading.Event()
        self._flows.set()
        self.lost = 0
        """How many answers have been lost."""
        self.accepted = 0
        """How many connections there have been."""
        self.unheard = 0
        """How many messages were not passed on."""
        self.sent: list[bytes] = []
        """What clients have sent, in pieces of up to 64 KiB."""
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def url(self) -> str:
        """The server, by this wire. Plain text, so that a commit can be recognised."""
        user = quote(str(self._parts.get("user", "postgres")))
        password = f":{quote(str(self._parts['password']))}" if "password" in self._parts else ""
        port, name = self._listener.getsockname()[1], self._parts.get("dbname", "postgres")
        settings = "sslmode=disable&gssencmode=disable"
        return f"postgresql://{user}{password}@127.0.0.1:{port}/{name}?{settings}"

    def lose_answers(self, number: int = 1) -> None:
        """Lose the answers to the next commits."""
        with self._lock:
            self._losing = number

    def lead_to(self, server_url: str) -> None:
        """Connect to another server from now on."""
        self._parts = conninfo_to_dict(server_url)

    def hang_up(self, *, only_transactions: bool = False, only_with: str = "") -> None:
        """Lose the answer to the next commit, cut all connections, and refuse others.

        With `only_transactions`, a statement that is committed by itself does not count; nor does
        what is sent without the text `only_with`.
        """
        self._hangs_up = True
        self._only_transactions = only_transactions
        self._only_with = only_with.encode()
        self.lose_answers()

    @property
    def refuses(self) -> bool:
        """True once it has hung up."""
        return self._refusing

    def refuse(self) -> None:
        """Cut all connections, and refuse others."""
        self._refusing = True
        self.cut()

    def pick_up(self) -> None:
        """Accept connections again."""
        self._refusing = self._hangs_up = False

    def swallow_commit(self) -> None:
        """Lose the next commit itself: the client is cut off, and the server waits for more."""
        self._swallowing = True

    def swallows(self, server: socket.socket, data: bytes) -> bool:
        """True for the commit that was asked for."""
        with self._lock:
            swallows, self._swallowing = self._swallowing, False
        if swallows:
            self._swallowed = server, data
            self.lost += 1
        return swallows

    def deliver_swallowed(self) -> None:
        """Let the server have the swallowed commit after all, long after its client has gone."""
        assert self._swallowed is not None
        server, data = self._swallowed
        server.sendall(data)

    def drop_swallowed(self) -> None:
        """Let the server notice that the client of the swallowed commit is gone."""
        if self._swallowed is not None:
            _close(self._swallowed[0])

    def hold(self) -> None:
        """Keep back what is sent to the server, until it is let go."""
        self._flows.clear()

    def let_go(self) -> None:
        """Send what was kept back."""
        self._flows.set()

    def flows(self) -> None:
        """Come back when nothing is kept back."""
        self._flows.wait()

    @property
    def listeners(self) -> int:
        """How many connections have sent LISTEN."""
        with self._lock:
            return sum(wire.listens for wire in self._wires)

    def forget_listeners(self) -> None:
        """Pass nothing on any more where LISTEN was sent."""
        with self._lock:
            for wire in self._wires:
                if wire.listens:
                    wire.silent.set()

    def cut(self) -> None:
        """Cut every connection, as a network does."""
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            _close(connection)

    def close(self) -> None:
        self.let_go()
        self.drop_swallowed()
        _close(self._listener)
        self.cut()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refusing:
                    _close(client)
                    continue
                self.accepted += 1
                try:
                    server = self._connect()
                except OSError:
                    _close(client)
                    continue
                wire = Wire(self, client, server)
                with self._lock:
                    self._wires.append(wire)

    def _connect(self) -> socket.socket:
        host, port = str(self._parts.get("host", "")), int(self._parts.get("port") or 5432)
        if not host.startswith("/"):
            return socket.create_connection((host or "localhost", port))
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(f"{host}/.s.PGSQL.{port}")
        except OSError:
            server.close()
            raise
        return server

    def add(self, *connections: socket.socket) -> None:
        with self._lock:
            self._open.update(connections)

    def loses_this(self, data: bytes) -> bool:
        """True for as many commits as were asked for."""
        by_itself = b"commit\0" not in data.lower()
        with self._lock:
            if not self._losing or (by_itself and self._only_transactions):
                return False
            if self._only_with not in data:
                return False
            self._losing -= 1
            self.lost += 1
            return True

    def lost_one(self) -> None:
        """The server has answered, and the answer is lost."""
        if self._hangs_up:
            self._refusing = True
            self.cut()


class Wire:
    """One client, one server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._deaf = threading.Event()
        self.silent = threading.Event()
        self.listens = False
        self._in_transaction = False
        proxy.add(client, server)
        for forward in (self._to_server, self._to_client):
            threading.Thread(target=forward, daemon=True).start()

    def _to_server(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(65_536):
                self.listens = self.listens or b"listen " in data
                if self.silent.is_set():
                    self._proxy.unheard += 1
                    continue
                self._proxy.sent.append(data)
                self._proxy.flows()
                commits = self._commits(data)
                if commits and self._proxy.swallows(self._server, data):
                    _close(self._client)
                    return
                if commits and self._proxy.loses_this(data):
                    self._deaf.set()
                self._server.sendall(data)
        self._cut()

    def _commits(self, data: bytes) -> bool:
        """True for a commit, and for a statement that is committed by itself.

        Not for the report of a worker, which comes at any time.
        """
        text = data.lower()
        begins, commits = b"begin" in text, b"commit\0" in text
        by_itself = WRITES.search(text) and not self._in_transaction and not begins
        reports = REPORTS.search(text)
        if begins:
            self._in_transaction = True
        if commits or b"rollback" in text:
            self._in_transaction = False
        return (commits or bool(by_itself)) and not reports

    def _to_client(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(65_536):
                if self._deaf.is_set():
                    self._proxy.lost_one()
                    break
                if self.silent.is_set():
                    self._proxy.unheard += 1
                    continue
                self._client.sendall(data)
        self._cut()

    def _cut(self) -> None:
        _close(self._client)
        _close(self._server)


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
