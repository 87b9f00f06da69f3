"""Which endpoints and addresses jobs may be pushed to (protection against SSRF). Pure.

The owner of a queue chooses its endpoint, and this machine can reach more than the owner: its own
ports, private networks, the metadata service of its cloud. So a URL is parsed strictly and
normalised, only public addresses are allowed, and the checked address is the one that is used.
"""

from __future__ import annotations

import re
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from onefold.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

LENGTH: Final = 2_048
NAME_LENGTH: Final = 253
PORTS: Final = range(1, 65_536)
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

# Strict: a URL that another parser could read differently is rejected.
_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[!-\"$-\[\]-~]*)?(?P<query>\?[!-\"$-\[\]-~]*)?",
    re.ASCII | re.IGNORECASE,
)
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)

# Listed here: the list in Python's ipaddress module differs between versions.
_NOT_PUBLIC: Final[tuple[tuple[str, str], ...]] = (
    ("0.0.0.0/8", "this machine"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared by a carrier"),
    ("127.0.0.0/8", "loopback"),
    ("168.63.129.16/32", "a service of Azure's hosts"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "for documentation"),
    ("192.88.99.0/24", "reserved"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("::/128", "this machine"),
    ("::1/128", "loopback"),
    ("64:ff9b:1::/48", "private"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "for documentation"),
    ("3fff::/20", "for documentation"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "private"),
    ("ff00::/8", "multicast"),
)
NOT_PUBLIC: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ip_network(network), why) for network, why in _NOT_PUBLIC
)
GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
SIX_TO_FOUR: Final = IPv6Network("2002::/16")
NAT64: Final = IPv6Network("64:ff9b::/96")
ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})


class AddressRefused(InvalidInput):
    """The address is not allowed for pushes."""


class Endpoint(msgspec.Struct, frozen=True):
    """A normalised URL and its parts."""

    url: str
    scheme: str
    host: str
    """In lower case; an IPv6 address without its brackets."""
    port: int

    @property
    def address(self) -> Address | None:
        """The host as an address; None for a name."""
        return _address(self.host)


def endpoint(text: object, field: str = "endpoint") -> Endpoint:
    """Parse the URL of an endpoint; raises `InvalidInput` if it is not valid."""
    if not isinstance(text, str) or len(text) > LENGTH:
        raise InvalidInput(field, f"must be a URL of at most {LENGTH} characters")
    found = _URL.fullmatch(text)
    if found is None:
        raise InvalidInput(
            field,
            # The URL is not part of the message: it may contain a password.
            "must be an http or https URL of ASCII characters, without credentials and without a"
            " fragment",
        )
    scheme, host = found["scheme"].lower(), _host(found["host"].lower(), field)
    port = DEFAULT_PORTS[scheme] if found["port"] is None else int(found["port"])
    if port not in PORTS:
        raise InvalidInput(field, f"must have a port from 1 to 65535, got {port}")
    shown = f"[{host}]" if ":" in host else host
    place = shown if port == DEFAULT_PORTS[scheme] else f"{shown}:{port}"
    url = f"{scheme}://{place}{found['path'] or '/'}{found['query'] or ''}"
    return Endpoint(url, scheme, host, port)


def _host(text: str, field: str) -> str:
    if text.startswith("["):
        address = _address(text[1:-1])
        if not isinstance(address, IPv6Address):
            raise InvalidInput(field, f"must have an IPv6 address in its brackets, got {text}")
        return str(address)
    labels = text.removesuffix(".").split(".")
    if len(text) > NAME_LENGTH or not all(map(_LABEL.fullmatch, labels)):
        raise InvalidInput(field, f"must have a host name as DNS has them, got {text!r}")
    # Some parsers read names that end in a number as addresses: 127.1, 2130706433, 0x7f.1.
    if _NUMBER.fullmatch(labels[-1]) and not isinstance(_address(text), IPv4Address):
        raise InvalidInput(
            field, f"must have an IPv4 address as four decimal numbers, got {text!r}"
        )
    return text


def _address(text: str) -> Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


class AddressPolicy:
    """Allows public addresses, and the networks and hosts in `allow`."""

    def __init__(self, allow: Sequence[str] = ()) -> None:
        """`allow` contains networks, addresses and host names: `10.0.0.0/8`, `hooks.internal`."""
        self._networks: list[Network] = []
        self._hosts: set[str] = set()
        for one in allow:
            self._allow(one)

    def _allow(self, one: object) -> None:
        text = one.strip().lower() if isinstance(one, str) else ""
        try:
            self._networks.append(ip_network(text))
        except ValueError as error:
            name = text.removesuffix(".")
            if not name or not all(map(_LABEL.fullmatch, name.split("."))):
                raise InvalidInput(
                    "allow", f"must have networks and names of hosts, got {one!r}: {error}"
                ) from None
            self._hosts.add(name)

    def check(self, endpoint: Endpoint) -> None:
        """Reject an endpoint by its URL. The addresses of a name are checked at each connection."""
        if self.allows_host(endpoint.host):
            return
        address = endpoint.address
        if address is not None:
            self.check_address(address)
        elif _is_localhost(endpoint.host) and not self._allows(IPv4Address("127.0.0.1")):
            raise _refused("loopback")

    def allows_host(self, host: str) -> bool:
        """Whether a host is allowed by name, with any address."""
        return host.removesuffix(".") in self._hosts

    def check_address(self, address: Address) -> None:
        """Reject an address that is neither public nor allowed."""
        why = self._why_not(address)
        if why is not None:
            raise _refused(why)

    def _allows(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def _why_not(self, address: Address) -> str | None:
        """Why an address is not allowed; None if it is."""
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            return "link-local"
        if self._allows(address):
            return None
        # An embedded IPv4 address counts: a gateway, or this machine, may connect to it.
        for inner in _inside(address):
            if (why := self._why_not(inner)) is not None:
                return why
        for network, why in NOT_PUBLIC:
            if address in network:
                return why
        if isinstance(address, IPv6Address) and not _is_reachable(address):
            return "reserved"
        return None


def _refused(why: str) -> AddressRefused:
    return AddressRefused(
        "endpoint",
        # Without a full stop: the caller adds one.
        f"leads to an address that is {why}. Jobs are pushed to public addresses. To allow others,"
        " start the server with --push-allow NETWORK (push_allow of ServerSettings)",
    )


def _is_localhost(host: str) -> bool:
    name = host.removesuffix(".")
    return name == "localhost" or name.endswith(".localhost")


def _is_reachable(address: IPv6Address) -> bool:
    return address in GLOBAL_UNICAST or address in NAT64 or address.ipv4_mapped is not None


def _inside(address: Address) -> list[IPv4Address]:
    """IPv4 addresses that are embedded in an IPv6 address."""
    if isinstance(address, IPv4Address):
        return []
    bits, found = int(address), list[IPv4Address]()
    low = IPv4Address(bits & 0xFFFF_FFFF)
    if address.ipv4_mapped is not None or address in NAT64:
        found.append(low)
    if address in SIX_TO_FOUR:
        found.append(IPv4Address(bits >> 80 & 0xFFFF_FFFF))
    if bits >> 32 & 0xFFFF_FFFF in ISATAP:
        found.append(low)
    return found
