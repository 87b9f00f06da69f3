"""Requests against a server that misbehaves: every try ends, in time, with a sentence."""

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import BinaryIO

import pytest

from onefold.push.address import AddressPolicy, endpoint
from onefold.push.response_policy import NoResponse, PushExchange, PushResponse
from onefold.push.sender import Lookup, PushSender
from tests.fixtures.patience import HANG
from tests.push.receiver import Manner, Received, Receiver, goes_on, hangs, resets, says, sends

LOOPBACK = AddressPolicy(["127.0.0.0/8"])
SOON = 1.0

Post = Callable[..., Awaitable[PushExchange]]


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, idle connections are kept for the length of a test."""
    monkeypatch.setattr("onefold.push.sender.KEEPALIVE", HANG)


@asynccontextmanager
async def sending(
    url: str,
    policy: AddressPolicy = LOOPBACK,
    *,
    within: float = HANG,
    connections: int = 10,
    lookup: Lookup | None = None,
) -> AsyncGenerator[Post]:
    """Posts to an endpoint."""
    sender = PushSender(policy, connections=connections, lookup=lookup)
    place = endpoint(url)

    async def send(body: bytes = b"{}", header: str = "1") -> PushExchange:
        return await sender.post(place, body, {"X-One": header}, within=within)

    try:
        yield send
    finally:
        await sender.close()


async def post(
    manner: Manner, *, within: float = HANG, tries: int = 1
) -> tuple[PushExchange, Receiver]:
    """The last of so many tries at a receiver."""
    async with Receiver(manner) as receiver, sending(receiver.url, within=within) as send:
        exchanges = [await send() for _ in range(tries)]
    return exchanges[-1], receiver


@contextmanager
def by_hand(answer: Callable[[socket.socket, BinaryIO], None], *, times: int) -> Generator[str]:
    """The URL of a server that answers what has come by so many connections, in a thread."""

    def serve(listener: socket.socket) -> None:
        for _ in range(times):
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as request:
                while request.readline() != b"\r\n":
                    pass
                answer(connection, request)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.join(HANG)


async def test_an_answer_is_read_with_an_excerpt() -> None:
    exchange, receiver = await post(says(201, ("X-Two", "2"), body=b"thanks \x00\x1b[31m\xff"))

    assert isinstance(exchange, PushResponse)
    assert (exchange.status, exchange.excerpt) == (201, "thanks [31m�")
    assert ("X-Two", "2") in exchange.headers
    assert exchange.duration > 0
    (received,) = receiver.received
    assert received.path == "/hook"
    assert received.headers["x-one"] == "1"
    assert received.headers["host"] == f"127.0.0.1:{receiver.port}"


@pytest.mark.parametrize("cut", [sends(b""), resets], ids=["closed", "reset"])
async def test_a_request_that_was_read_is_not_sent_again(cut: Manner) -> None:
    bodies = [b"0", b"1", b"2"]
    async with Receiver(says(200), cut, says(200)) as receiver, sending(receiver.url) as send:
        kinds = [type(await send(body)) for body in bodies]

    assert kinds == [PushResponse, NoResponse, PushResponse]
    assert [received.body for received in receiver.received] == bodies


async def test_a_connection_that_was_closed_while_idle_costs_no_try() -> None:
    bodies: list[bytes] = []
    closed = threading.Event()

    def serve(connection: socket.socket, request: BinaryIO) -> None:
        bodies.append(request.read(1))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()

    with by_hand(serve, times=2) as url:
        async with sending(url) as send:
            first = await send(b"1")
            # Waited for in the loop's own thread, which cannot see the end meanwhile.
            assert closed.wait(HANG)
            second = await send(b"2")

    assert (type(first), type(second)) == (PushResponse, PushResponse)
    assert bodies == [b"1", b"2"]


@pytest.mark.parametrize("at_once", [True, False], ids=["with the first", "while it is idle"])
@pytest.mark.parametrize(
    "more",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-One: "],
    ids=["another answer", "the beginning of one"],
)
async def test_what_comes_after_an_answer_is_no_part_of_the_next(
    *, more: bytes, at_once: bool
) -> None:
    answered, went = asyncio.Event(), asyncio.Event()

    async def manner(received: Received, writer: asyncio.StreamWriter) -> None:
        if received.body == b"2":
            writer.write(b"HTTP/1.1 500 Failed\r\nContent-Length: 0\r\n\r\n")
            return
        first = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
        if at_once:
            writer.write(first + more)
        else:
            writer.write(first)
            await answered.wait()
            writer.write(more)
        went.set()

    async with Receiver(manner) as receiver, sending(receiver.url) as send:
        first = await send(b"1")
        answered.set()
        await went.wait()
        for _ in range(3):
            await asyncio.sleep(0)  # the event loop may read what has arrived
        second = await send(b"2")

    assert isinstance(first, PushResponse)
    assert isinstance(second, PushResponse)
    assert (first.status, second.status) == (201, 500)


BIG = b"x" * 32_000_000


@pytest.mark.parametrize(
    ("answer", "exchange"),
    [
        (b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", PushResponse),
        (b"", NoResponse),
    ],
    ids=["answered", "hangs"],
)
async def test_a_request_that_is_not_read_is_not_kept(answer: bytes, exchange: type) -> None:
    sizes: list[int] = []
    over = threading.Event()

    def serve(connection: socket.socket, request: BinaryIO) -> None:
        connection.sendall(answer)
        assert over.wait(HANG)
        over.clear()
        sizes.append(len(request.read()))

    with by_hand(serve, times=2) as url:
        async with sending(url, within=HANG if answer else SOON) as send:
            for _ in range(2):
                assert type(await send(BIG)) is exchange
                over.set()

    assert len(sizes) == 2
    assert max(sizes) < len(BIG)


@pytest.mark.parametrize("status", [b"100 Continue", b"103 Early Hints"])
async def test_answers_before_the_answer_are_skipped(status: bytes) -> None:
    early = b"HTTP/1.1 " + status + b"\r\nLink: </a>\r\n\r\n"
    exchange, _ = await post(
        sends(early + early + b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok")
    )

    assert isinstance(exchange, PushResponse)
    assert (exchange.status, exchange.excerpt) == (202, "ok")


async def test_another_protocol_is_an_answer_and_ends_the_connection() -> None:
    switched = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    exchange, receiver = await post(sends(switched), tries=2)

    assert isinstance(exchange, PushResponse)
    assert exchange.status == 101
    assert receiver.connections == 2


@pytest.mark.parametrize("text", ["1\r\nX-Two: 2", "1\nX-Two: 2", "1\rX-Two: 2"])
async def test_a_header_with_a_line_break_is_not_sent(text: str) -> None:
    async with Receiver() as receiver, sending(receiver.url) as send:
        assert isinstance(await send(header=text), NoResponse)

    assert receiver.received == []


@pytest.mark.parametrize(
    ("manner", "why"),
    [
        (hangs, "no answer within 1 s"),
        (sends(b"HTTP/1.1 200 OK\r\n", then="hang"), "no answer within 1 s"),
        (resets, "closed the connection: Connection reset by peer"),
        (sends(b""), "closed the connection without an answer"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Le"), "closed the connection without an answer"),
        (sends(b"\x00\x01\x02 garbage \r\n\r\n"), "not HTTP"),
        (sends(b"SSH-2.0-OpenSSH_9.2\r\n"), "not HTTP"),
        (sends(b"HTTP/1.1 abc OK\r\n\r\n"), "not HTTP"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), "not HTTP"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nlonger than that"), "not HTTP"),
        (sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nno"), "not HTTP"),
        (goes_on(b"X-Header: again\r\n"), "headers are too long"),
        (goes_on(b"x" * 1000, after=b"HTTP/1.1 200 OK\r\nX-Header: "), "headers are too long"),
        (goes_on(b"x" * 1000, after=b""), "not HTTP"),
    ],
)
async def test_what_is_no_answer_is_a_sentence(manner: Manner, why: str) -> None:
    patience = SOON if "within" in why else HANG
    exchange, receiver = await post(manner, within=patience)

    assert isinstance(exchange, NoResponse)
    assert why in exchange.why
    assert len(receiver.received) == 1


@pytest.mark.parametrize(
    "manner",
    [
        pytest.param(
            sends(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), id="short of its length"
        ),
        pytest.param(
            sends(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope"),
            id="no gzip",
        ),
        pytest.param(
            goes_on(b"x" * 60_000, after=b"HTTP/1.1 200 OK\r\n\r\n"), id="a body without an end"
        ),
        pytest.param(
            goes_on(b"x" * 9_000, after=b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"),
            id="a huge body",
        ),
    ],
)
async def test_a_status_counts_whatever_becomes_of_the_body(manner: Manner) -> None:
    exchange, _ = await post(manner)

    assert isinstance(exchange, PushResponse)
    assert exchange.status == 200
    assert len(exchange.excerpt) <= 1024


async def test_a_status_counts_if_the_time_ends_in_the_body() -> None:
    start = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nstart"
    exchange, _ = await post(sends(start, then="hang"), within=SOON)

    assert isinstance(exchange, PushResponse)
    assert (exchange.status, exchange.excerpt) == (200, "start")


async def test_no_redirect_is_followed_no_cookie_kept_and_no_proxy_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Receiver() as elsewhere, Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        redirect = (("Location", elsewhere.url), ("Set-Cookie", "a=1; Path=/"))
        exchange, receiver = await post(says(307, *redirect), tries=2)

        assert isinstance(exchange, PushResponse)
        assert exchange.status == 307
        assert len(receiver.received) == 2
        assert all("cookie" not in received.headers for received in receiver.received)
        assert (elsewhere.received, proxy.received) == ([], [])


async def test_nobody_at_the_port_is_a_sentence() -> None:
    async with Receiver() as gone:
        url = gone.url
    async with sending(url) as send:
        exchange = await send()

    assert isinstance(exchange, NoResponse)
    assert exchange.why.startswith("could not connect:")
    assert "127.0.0.1" not in exchange.why


async def test_tls_with_who_has_none_is_a_sentence() -> None:
    async with (
        Receiver() as receiver,
        sending(receiver.url.replace("http:", "https:"), within=SOON) as send,
    ):
        assert isinstance(await send(), NoResponse)


async def test_an_endpoint_has_no_more_connections_than_it_may() -> None:
    under_way = most = 0

    async def counting(received: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        await says(200)(received, writer)

    async with Receiver(counting) as receiver, sending(receiver.url, connections=3) as send:
        exchanges = await asyncio.gather(*[send() for _ in range(30)])

    assert all(isinstance(exchange, PushResponse) for exchange in exchanges)
    assert receiver.connections <= 3
    assert most <= 3


async def test_an_endpoint_that_hangs_does_not_keep_another_of_its_host_waiting() -> None:
    def by(received: Received) -> Manner:
        return hangs if received.path == "/hook" else says(200)

    async with Receiver(by=by) as receiver:
        sender = PushSender(LOOPBACK, connections=2)
        place = endpoint(receiver.url)
        hanging = [
            asyncio.create_task(sender.post(place, b"{}", {}, within=HANG)) for _ in range(3)
        ]
        other = endpoint(receiver.url.replace("/hook", "/other"))
        exchange = await sender.post(other, b"{}", {}, within=HANG)

        assert isinstance(exchange, PushResponse)
        assert not any(task.done() for task in hanging)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        await sender.close()


# --- names ----------------------------------------------------------------------------------------


async def post_to_name(
    addresses: list[list[str]], *, allow: tuple[str, ...] = (), tries: int = 1
) -> tuple[list[PushExchange], Receiver]:
    """Tries at a name whose addresses are others each time that they are asked for."""
    answers = iter(addresses)

    async def lookup(host: str) -> list[str]:
        assert host == "hooks.example"
        return next(answers)

    async with Receiver(says(200, ("Connection", "close"))) as receiver:
        url = f"http://hooks.example:{receiver.port}/hook"
        async with sending(url, AddressPolicy(allow), lookup=lookup) as send:
            return [await send() for _ in range(tries)], receiver


INSIDE = "leads to an address that is"


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (["127.0.0.1"], INSIDE),
        (["::ffff:127.0.0.1"], INSIDE),
        (["fe80::1%lo"], INSIDE),
        ([], "could not connect: the name hooks.example has no address"),
    ],
)
async def test_a_name_that_leads_inside_is_refused_and_its_address_not_told(
    address: list[str], why: str
) -> None:
    (exchange,), receiver = await post_to_name([address])

    assert isinstance(exchange, NoResponse)
    assert why in exchange.why
    assert not [each for each in address if each in exchange.why]
    assert receiver.connections == 0


@pytest.mark.parametrize(
    ("addresses", "allow"),
    [
        ([["10.0.0.1", "127.0.0.1", "169.254.169.254"]], "127.0.0.1"),
        # The second answer is the attacker's: it must never be asked for.
        ([["127.0.0.1"], ["169.254.169.254"]], "127.0.0.1"),
        ([["127.0.0.1"]], "hooks.example"),
    ],
    ids=["several addresses", "asked once", "allowed by its name"],
)
async def test_only_an_address_that_may_be_is_connected_to(
    addresses: list[list[str]], allow: str
) -> None:
    (exchange,), receiver = await post_to_name(addresses, allow=(allow,))

    assert isinstance(exchange, PushResponse)
    (received,) = receiver.received
    assert received.headers["host"] == f"hooks.example:{receiver.port}"


async def test_a_name_that_leads_inside_later_is_refused_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onefold.push.sender.DNS_TTL", 0)

    (first, second), receiver = await post_to_name(
        [["127.0.0.1"], ["127.0.0.2"]], allow=("127.0.0.1",), tries=2
    )

    assert isinstance(first, PushResponse)
    assert isinstance(second, NoResponse)
    assert len(receiver.received) == 1


async def test_names_of_this_machine_are_looked_up_and_refused() -> None:
    async with Receiver() as receiver:
        url, policy = f"http://localhost:{receiver.port}/", AddressPolicy(["10.0.0.0/8"])
        async with sending(url, policy) as send:
            assert isinstance(await send(), NoResponse)

    assert receiver.connections == 0
