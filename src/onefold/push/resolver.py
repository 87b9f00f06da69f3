"""Looks names up, and answers with nothing but addresses that may be connected to.

The connector connects to what it is given here and asks nobody again, so a name that means another
address a moment later changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, TypeAlias

from onefold.errors.extra import Needs

with Needs("onefold[server]"):
    from aiohttp.abc import AbstractResolver, ResolveResult


from onefold.push.address import AddressRefused

if TYPE_CHECKING:
    from onefold.push.address import AddressPolicy

Lookup: TypeAlias = Callable[[str], Awaitable[list[str]]]
"""A name to its addresses, as text."""

THREADS: Final = 32
"""For names whose servers do not answer: others are looked up meanwhile."""

log: logging.Logger = logging.getLogger("onefold.push")


class CheckedResolver(AbstractResolver):
    """What aiohttp asks for addresses."""

    def __init__(self, policy: AddressPolicy, lookup: Lookup | None = None) -> None:
        """`lookup` stands in for the machine's own."""
        self._policy = policy
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="onefold-names")
        self._lookup = self._ask if lookup is None else lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a name that may be pushed to; raises `AddressRefused` without any."""
        del family
        allowed, refusal = list[ResolveResult](), None
        for text in await self._lookup(host):
            address = ip_address(text)
            try:
                if not self._policy.allows_host(host):
                    self._policy.check_address(address)
            except AddressRefused as error:
                # The log is the operator's. The sentence is also for whoever asks by a name what
                # there is in this network, and does not tell the address.
                log.warning("Nothing is pushed to %s: it has the address %s.", host, text)
                refusal = error
            else:
                allowed.append(_answer(host, str(address), port, version=address.version))
        if allowed:
            return allowed
        raise refusal or OSError(f"{host} has no address")

    async def _ask(self, host: str) -> list[str]:
        ask = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        return [str(place[0]) for *_, place in found]

    async def close(self) -> None:
        """Wait for no answer any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _answer(host: str, address: str, port: int, *, version: int) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET if version == 4 else socket.AF_INET6,  # noqa: PLR2004 - IP's own
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )
