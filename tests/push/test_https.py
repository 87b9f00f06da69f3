"""Pushes over TLS: to who can show that it is the host of the URL, and to nobody else."""

import asyncio
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onefold.push.address import AddressPolicy, endpoint
from onefold.push.response_policy import NoResponse, PushResponse
from onefold.push.sender import PushSender
from tests.fixtures.certificates import Authority
from tests.fixtures.patience import HANG
from tests.push.receiver import Receiver

HOST = "hooks.example"


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """One that this process trusts."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    # However slow the machine is, an idle connection is kept for the length of a test.
    monkeypatch.setattr("onefold.push.sender.KEEPALIVE", HANG)
    return authority


async def post(
    tls: ssl.SSLContext, host: str = HOST, *, tries: int = 1
) -> tuple[PushResponse | NoResponse, Receiver]:
    """The last of so many tries at a receiver that is found under the name of `host`."""

    async def lookup(name: str) -> list[str]:
        assert name == host
        return ["127.0.0.1"]

    async with Receiver(tls=tls) as receiver:
        sender = PushSender(AddressPolicy(["127.0.0.1"]), connections=10, lookup=lookup)
        place = endpoint(f"https://{host}:{receiver.port}/hook")
        exchanges = [await sender.post(place, b"{}", {}, within=HANG) for _ in range(tries)]
        await sender.close()
    return exchanges[-1], receiver


@pytest.mark.parametrize("host", [HOST, f"{HOST}.", "127.0.0.1"])
def test_the_name_in_the_url_is_asked_for_and_shown(authority: Authority, host: str) -> None:
    tls = authority.server(host.removesuffix("."))
    asked: list[str | None] = []

    def named(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        asked.append(name)

    tls.sni_callback = named

    exchange, receiver = asyncio.run(post(tls, host, tries=3))

    assert isinstance(exchange, PushResponse)
    # An address is not asked for by name: TLS knows none.
    assert asked == [None if host == "127.0.0.1" else HOST]
    assert (len(receiver.received), receiver.connections) == (3, 1)
    assert receiver.received[0].headers["host"] == f"{host.removesuffix('.')}:{receiver.port}"


@pytest.mark.parametrize(
    ("host", "flaw", "why"),
    [
        (HOST, {"life": timedelta(hours=-1)}, "has expired"),
        (HOST, {"signed_by_itself": True}, "self-signed"),
        ("other.example", {}, "Hostname mismatch, certificate is not valid for 'hooks.example'"),
        # That of the address which the name has is not that of the name.
        ("127.0.0.1", {}, "Hostname mismatch"),
    ],
    ids=["expired", "signed by itself", "of another", "of its address"],
)
def test_a_certificate_that_proves_nothing_gets_nothing(
    authority: Authority, host: str, flaw: dict[str, Any], why: str
) -> None:
    exchange, receiver = asyncio.run(post(authority.server(host, **flaw)))

    assert isinstance(exchange, NoResponse)
    assert exchange.why.startswith("could not connect: its certificate is not valid (")
    assert why in exchange.why
    assert receiver.received == []


def test_an_authority_that_nobody_has_named_is_not_trusted(tmp_path: Path) -> None:
    exchange, receiver = asyncio.run(post(Authority(tmp_path).server(HOST)))

    assert isinstance(exchange, NoResponse)
    assert "unable to get local issuer certificate" in exchange.why
    assert receiver.received == []


@pytest.mark.parametrize("text", [None, "", "no PEM"])
def test_a_file_of_authorities_that_cannot_be_read_is_told_of(
    authority: Authority, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    server = authority.server(HOST)
    authority.file.unlink()
    if text is not None:
        authority.file.write_text(text)

    exchange, _ = asyncio.run(post(server, tries=2))

    assert isinstance(exchange, NoResponse)
    told = f"No certificate could be read from SSL_CERT_FILE, {authority.file}."
    assert caplog.messages.count(told) == 1
