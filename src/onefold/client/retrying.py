"""Send until it is answered: which failures pass, how long to wait, when to give up."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.client.errors import Unreachable
from onefold.client.flow import Pause, Reply, Send
from onefold.client.problems import code_of
from onefold.model.retry import parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from onefold.client.flow import Flow
    from onefold.client.patience import Patience

PASSING: Final = frozenset({429, 500, 502, 503, 504})
"""Not now, rather than no."""

ASK_AGAIN: Final = frozenset({"in_progress"})
"""Conflicts that say: the same request again, later, and you are told. So does the `lease_lost` of
an Idempotency-Key; that of a delivery or claim promises nothing, and has no Retry-After."""

CONFLICT: Final = 409

SETTLED: Final = frozenset({"attempt_failed"})
"""Problems that the same request would be told again for as long as its key is remembered."""


def persist(
    send: Send,
    patience: Patience,
    *,
    clock: Callable[[], float] = time.monotonic,
    dice: Callable[[], float] = random.random,
) -> Flow[Reply]:
    """Send a request, and again while that may help; the last answer, or `Unreachable`."""
    deadline = clock() + patience.deadline.total_seconds()
    tried = 0
    while True:
        tried += 1
        left = max(deadline - clock(), 0.001)
        timeout = min(patience.timeout.total_seconds(), left)
        failure: Unreachable | None = None
        reply: Reply | None = None
        try:
            reply = yield msgspec.structs.replace(send, timeout=timeout)
        except Unreachable as error:
            failure = error
        if reply is not None and not is_passing(reply):
            return msgspec.structs.replace(reply, tries=tried)
        wait = max(patience.pause(tried, dice()), asked_for(reply))
        if tried >= patience.tries or clock() + wait >= deadline:
            if failure is not None:
                raise Unreachable(failure.url, failure.reason, tries=tried) from failure.__cause__
            assert reply is not None
            return msgspec.structs.replace(reply, tries=tried)
        yield Pause(wait)


def is_passing(reply: Reply) -> bool:
    """Whether the same request may be answered otherwise in a moment."""
    if reply.status in PASSING:
        return code_of(reply) not in SETTLED
    if reply.status != CONFLICT:
        return False
    code = code_of(reply)
    return code in ASK_AGAIN or (code == "lease_lost" and "retry-after" in reply.headers)


def asked_for(reply: Reply | None) -> float:
    """The seconds that the server asks for; 0 where it does not."""
    said = None if reply is None else reply.headers.get("retry-after")
    if reply is None or said is None:
        return 0.0
    wait = parse_retry_after(said, now=datetime.now(UTC), date=reply.headers.get("date"))
    return 0.0 if wait is None else wait.total_seconds()
