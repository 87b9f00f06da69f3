"""What went wrong with an exchange, in words for whoever owns the endpoint.

They do not tell what only we should know, such as the addresses that a name has in this network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onefold.errors.extra import Needs

with Needs("onefold[server]"):
    import aiohttp


if TYPE_CHECKING:
    from collections.abc import Callable


def told(error: Exception) -> str:
    """The sentence for an error of the exchange."""
    for kind, sentence in _SENTENCES:
        if isinstance(error, kind):
            return sentence(error)
    return f"the exchange failed: {type(error).__name__}"


def _no_address(error: Any) -> str:
    return f"could not connect: the name {error.host} has no address"


def _certificate(error: Any) -> str:
    reason = getattr(error.certificate_error, "verify_message", None)
    return f"could not connect: its certificate is not valid ({reason or 'not verified'})"


def _tls(error: Any) -> str:
    reason = getattr(error.os_error, "reason", None)
    return f"could not connect: TLS failed ({reason or type(error.os_error).__name__})"


def _not_connected(error: Any) -> str:
    # Of several addresses that were tried, the sentence has them all.
    reason = error.os_error.strerror if error.os_error.errno else None
    plain = reason if reason and "(" not in reason else "nobody answers there"
    return f"could not connect: {plain}"


def _broken_off(error: Any) -> str:
    return f"broke the connection off: {error.strerror or type(error).__name__}"


_SENTENCES: Final[tuple[tuple[type[Exception], Callable[[Any], str]], ...]] = (
    (aiohttp.ClientConnectorDNSError, _no_address),
    (aiohttp.ClientConnectorCertificateError, _certificate),
    (aiohttp.ClientConnectorSSLError, _tls),
    (aiohttp.ClientConnectorError, _not_connected),
    (aiohttp.ServerDisconnectedError, lambda _: "closed the connection without an answer"),
    (OSError, _broken_off),
    (
        aiohttp.ClientResponseError,
        lambda _: "answered with what is not HTTP, or has too long a head",
    ),
)
"""The first that fits: some are kinds of others."""
