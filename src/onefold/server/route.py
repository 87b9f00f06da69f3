"""A route: what it takes, what it gives, who may ask. Routing and OpenAPI read one table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from onefold.server.asking import Asking, Said

Scope: TypeAlias = Literal["publish", "work", "admin"]
Keyed: TypeAlias = Literal["claim", "native", "none"]
Endpoint: TypeAlias = Callable[[Asking], Awaitable[Said]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: str
    path: str
    """`/v1/queues/{name}/jobs`"""
    name: str
    """The operation's name, for generators of clients."""
    summary: str
    endpoint: Endpoint
    scope: Scope | None
    """What an API key must carry; None is open to everybody."""
    body: Any = None
    """The type of the body; None where there is none."""
    body_optional: bool = False
    """True where nothing at all may be sent instead of `{}`."""
    query: Any = None
    answers: Mapping[int, Any]
    """The type of each answer that is no problem; None is an answer without a body."""
    problems: tuple[int, ...] = ()
    """Statuses of problems beside those that every route may answer with."""
    keyed: Keyed = "claim"
    """What a POST does with an Idempotency-Key: the dispatch claims it and replays the answer; or
    the endpoint makes it part of its own statement; or it is refused."""
    description: str = ""
    streams: bool = False
    """True where the endpoint answers by itself, message by message."""
