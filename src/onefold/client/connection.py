"""What both clients are told: where the server is, who asks, and how long to try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypedDict
from urllib.parse import urlsplit

import msgspec

from onefold import __version__
from onefold.client.patience import Patience
from onefold.client.problems import error_of
from onefold.client.retrying import persist
from onefold.errors import InvalidInput
from onefold.model import checks

if TYPE_CHECKING:
    from datetime import timedelta

    from onefold.client.flow import Flow, Reply, Send

LEAST_REFUSAL: Final = 300
"""A redirect is none of ours: the key must not be sent anywhere else."""


class ClientOptions(TypedDict, total=False):
    """How a client tries."""

    tries: int
    """How many times a request is sent at most; 8."""
    timeout: timedelta
    """For one try; 30 s."""
    deadline: timedelta
    """For all tries and the pauses between them; 2 minutes."""
    first_pause: timedelta
    """After the first try, doubled with every other; 250 ms, of which 50 to 100 % are waited."""
    longest_pause: timedelta
    """8 s. What the server asks for by Retry-After may be longer."""


class Connection(msgspec.Struct, frozen=True):
    """Checked."""

    url: str
    headers: Mapping[str, str]
    patience: Patience

    def __repr__(self) -> str:
        """Without the headers: the API key is one."""
        return f"Connection({self.url!r})"

    def ask(self, send: Send) -> Flow[Reply]:
        """Send a request until it is answered; a problem is raised as the error that it is."""
        reply = yield from persist(send, self.patience)
        if reply.status >= LEAST_REFUSAL:
            raise error_of(reply)
        return reply


def connection(url: str, api_key: str | None, options: ClientOptions) -> Connection:
    """Check where to, and how."""
    checks.options(options, ClientOptions.__optional_keys__)
    headers = {"Accept": "application/json", "User-Agent": f"onefold/{__version__}"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {_checked_key(api_key)}"
    usual = Patience()
    return Connection(
        _checked_url(url),
        headers,
        Patience(
            tries=options.get("tries", usual.tries),
            first=options.get("first_pause", usual.first),
            longest=options.get("longest_pause", usual.longest),
            timeout=options.get("timeout", usual.timeout),
            deadline=options.get("deadline", usual.deadline),
        ),
    )


def _checked_url(url: object) -> str:
    if not isinstance(url, str):
        reason = f"must be text such as http://localhost:8080, got {type(url).__name__}"
        raise InvalidInput("url", reason)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        # Not repeated: there may be a password in it.
        raise InvalidInput("url", "must begin with http:// or https:// and a host")
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidInput("url", "must be a host, a port and maybe a path; the key is api_key=")
    return url.rstrip("/")


def _checked_key(api_key: object) -> str:
    # Never in the message: it is a secret.
    if not isinstance(api_key, str) or not api_key.isascii() or not api_key.isprintable():
        raise InvalidInput("api_key", "must be the text that `onefold apikeys create` printed")
    if not api_key.strip():
        raise InvalidInput("api_key", "must not be empty; leave it out where the server needs none")
    return api_key.strip()
