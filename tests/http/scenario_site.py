"""A shop that takes payments, and the sites that it is visited through.

1. A `Shop` is the application: what its handler does is said by the test, and every framework's
   endpoint calls the same `apay` or `pay`.
2. A `Mode` is where a payment is written: our own database or a library's, joined or leased.
3. An adapter makes a `Client` of a shop: `apps.py` has those of ASGI. A `Site` is both.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import httpx
import msgspec

from onefold import Onefold
from onefold.web.http import HttpResponse
from onefold.web.idempotency.once_parameter import Once
from tests.fixtures.colours import Dialect, Store
from tests.fixtures.connections import Effects
from tests.fixtures.patience import HANG

LONG = HANG
"""Seconds after which a test that waits has failed."""

ALICE = "Bearer alice:first-token"
BOB = "Bearer bob:first-token"

Headers: TypeAlias = Sequence[tuple[str, str]]
Insert: TypeAlias = Callable[[Any, str], Any]


class Reply(NamedTuple):
    """What a client got."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def is_replay(self) -> bool:
        return bool(self.headers.get("Idempotent-Replayed") == "true")

    @property
    def problem(self) -> dict[str, Any]:
        """The members of a problem, which says itself that it is one."""
        assert self.headers["content-type"] == "application/problem+json", self
        members: dict[str, Any] = msgspec.json.decode(self.body)
        assert members["status"] == self.status
        return members

    @property
    def code(self) -> str:
        code: str = self.problem["code"]
        return code


class Client(Protocol):
    """Sends a request, through whichever framework."""

    async def request(self, method: str, path: str, headers: Headers, body: bytes) -> Reply: ...


class Gate:
    """Holds a handler open; for threads and for coroutines."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def go_through(self) -> None:
        self.entered.set()
        assert self.opened.wait(LONG)

    async def ago_through(self) -> None:
        await asyncio.to_thread(self.go_through)


@dataclass(frozen=True)
class Script:
    """What the handler does after it has written its payment."""

    answer: HttpResponse | None = None
    """None is 201 and the number of the run."""
    error: BaseException | None = None
    gate: Gate | None = None


@dataclass(frozen=True)
class Mode:
    """Where a payment is written, and what is said of it."""

    name: str
    dialect: Dialect
    insert: Insert | None
    """How a row is written on `once.connection`; a coroutine where that is awaited. None: the
    route is leased."""
    target: Callable[[Store, Onefold], Any] | None = None
    """Gives what `transaction` is; a coroutine where opening it is awaited."""

    @property
    def joined(self) -> bool:
        return self.insert is not None

    def __str__(self) -> str:
        return self.name


@dataclass
class Shop:
    """The application."""

    onefold: Onefold
    mode: Mode
    effects: Effects
    options: dict[str, Any]
    """Of every route that has a policy."""
    script: Script = Script()
    runs: int = 0
    """How often the handler has begun."""
    heard: list[bytes] = field(default_factory=list[bytes])
    """The bodies that it was given."""
    attempts: list[Once] = field(default_factory=list[Once])
    reads: int = 0
    """Requests to what has no policy."""
    meanwhile: Callable[[], Awaitable[None]] | None = None
    """What an awaited handler does besides, once it has written."""
    allows: bool = True
    """Whether anybody is let in."""

    def who(self, authorization: str | None) -> str | None:
        """The id of the caller: `Bearer <id>:<token>`, and nobody else."""
        if authorization is None or not self.allows:
            return None
        return authorization.removeprefix("Bearer ").partition(":")[0]

    async def apay(self, once: Once, body: bytes) -> HttpResponse:
        """The handler of frameworks that await."""
        statement = self._begin(once, body)
        if self.mode.insert is not None:
            written = self.mode.insert(once.connection, statement)
            if isinstance(written, Awaitable):
                await written
        else:
            async with once.atransaction() as connection:
                await connection.execute(statement)
        script = self.script
        if script.gate is not None:
            await script.gate.ago_through()
        if self.meanwhile is not None:
            await self.meanwhile()
        return self._end(script)

    def pay(self, once: Once, body: bytes) -> HttpResponse:
        """The handler of frameworks that block."""
        statement = self._begin(once, body)
        if self.mode.insert is not None:
            self.mode.insert(once.connection, statement)
        else:
            with once.transaction() as connection:
                connection.execute(statement)
        script = self.script
        if script.gate is not None:
            script.gate.go_through()
        return self._end(script)

    def _begin(self, once: Once, body: bytes) -> str:
        self.runs += 1
        self.heard.append(body)
        self.attempts.append(once)
        return self.effects.insert(self.runs)

    def _end(self, script: Script) -> HttpResponse:
        if script.error is not None:
            raise script.error
        if script.answer is not None:
            return script.answer
        body = b'{"payment": %d}' % self.runs
        return HttpResponse(201, (("Content-Type", "application/json"),), body)


class Site:
    """A shop, and a way to visit it."""

    def __init__(self, shop: Shop, client: Client) -> None:
        self.shop = shop
        self.client = client

    def answers(
        self, status: int = 201, body: bytes = b"", headers: Headers = (), gate: Gate | None = None
    ) -> None:
        """What the handler answers from now on."""
        self.shop.script = Script(HttpResponse(status, tuple(headers), body), gate=gate)

    def raises(self, error: BaseException) -> None:
        """What the handler raises from now on, once it has written."""
        self.shop.script = Script(error=error)

    def succeeds(self) -> None:
        """The handler answers 201 and its number again."""
        self.shop.script = Script()

    @property
    def payments(self) -> list[int]:
        """What is committed."""
        return self.shop.effects.numbers

    @property
    def claims(self) -> list[tuple[Any, ...]]:
        """Key and state of every claim that is committed."""
        return self.shop.effects.claims

    async def post(
        self,
        path: str = "/pay",
        *,
        key: str | None = "k",
        body: bytes = b'{"amount": 1}',
        headers: Mapping[str, str] | Headers = (),
        method: str = "POST",
        user: str | None = ALICE,
    ) -> Reply:
        """Send a request: Alice's, with the key `k`, unless told otherwise."""
        sent = [("Content-Type", "application/json")]
        if key is not None:
            sent.append(("Idempotency-Key", key))
        if user is not None:
            sent.append(("Authorization", user))
        more = list(headers.items() if isinstance(headers, Mapping) else headers)
        given = {name.lower() for name, _ in more}
        kept = [header for header in sent if header[0].lower() not in given]
        return await self.client.request(method, path, [*kept, *more], body)

    @asynccontextmanager
    async def held(self, **sent: Any) -> AsyncGenerator[asyncio.Task[Reply]]:
        """A request whose handler is at work for as long as the block."""
        gate, before = Gate(), self.shop.script
        self.shop.script = Script(before.answer, before.error, gate)
        first = asyncio.create_task(self.post(**sent))
        reached = asyncio.create_task(asyncio.to_thread(gate.entered.wait, LONG))
        await asyncio.wait({first, reached}, return_when=asyncio.FIRST_COMPLETED)
        self.shop.script = before
        try:
            assert not first.done(), first.result()
            yield first
        finally:
            gate.entered.set()
            gate.opened.set()
            await asyncio.wait({first, reached})


Adapter: TypeAlias = Callable[[Shop], Any]
"""Makes an application of a shop."""
OpenSite: TypeAlias = Callable[..., Awaitable[Site]]
