"""The Idempotency-Key of a POST whose endpoint does not look at it: claim, run, settle, replay.

What these endpoints do may be done again without harm, so a claim whose process died is taken over
and its endpoint runs again; what it answered, if it did, is given again byte for byte.

A request that is given up, because its time is over, leaves no claim behind: whoever is told to
send it again must not be told then that it is still at work.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from onefold.calls.procedure import once_through
from onefold.claims import Mismatch, Replay, Unknown, Won
from onefold.errors import Busy, OnefoldError
from onefold.model.claim import ClaimKey, want
from onefold.operations import claims
from onefold.server.asgi_io import Response
from onefold.server.request_context import FENCE
from onefold.web import problems
from onefold.web.http import HttpResponse, Kept, UnreadableAnswer, from_stored, to_stored
from onefold.web.idempotency.stored_response import replay
from onefold.web.problems import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    from onefold.calls.procedure import Conductor
    from onefold.claims import Claim
    from onefold.model.claim import ClaimAnswer as Claimed
    from onefold.server.request_context import RequestContext
    from onefold.web.http import HttpRequest

T = TypeVar("T")

MARGIN: Final = timedelta(seconds=30)
"""By so much a claim outlasts the time that a request may take."""
RETRY: Final = timedelta(seconds=1)
"""Requests are short: who comes while another is at work need not wait for the lease to end."""
KEPT: Final = timedelta(hours=24)
SCOPE: Final = "v1"
PATIENCE: Final = 2.0
"""Seconds for which a request that is given up waits for its key to be free again."""
_REFUSED: Final = 400

log: logging.Logger = logging.getLogger("onefold.server")
_going_on: Final[set[asyncio.Task[Any]]] = set()


async def run_keyed(
    asking: RequestContext,
    request: HttpRequest,
    body: bytes,
    endpoint: Callable[[], Awaitable[Response]],
) -> Response:
    """The answer of the first request with this key. A refusal leaves the key free."""
    assert asking.key is not None
    key = ClaimKey(asking.tenant, "http", SCOPE, asking.key)
    wanted = want(
        key,
        fingerprint=_fingerprint(request, body),
        lease=asking.server.settings.request_timeout + MARGIN,
        takeover="rerun",
        retention=KEPT,
    )
    conductor = asking.server.conductor
    answer = await _claimed(conductor, partial(claims.claim, wanted=wanted))
    if not isinstance(answer, Won):
        conductor.suppressing.note(key, asking.request_id)
    match answer:
        case Won(claim):
            return await _first(asking, claim, endpoint)
        case Replay():
            return _again(answer, request)
        case Busy():
            raise Refused(problems.in_progress(min(answer.retry_after, RETRY)))
        case Mismatch():
            raise Refused(problems.key_reused())
        case Unknown():
            raise Refused(problems.outcome_unknown())
        case _:
            raise AssertionError(answer)


async def _first(
    asking: RequestContext, claim: Claim, endpoint: Callable[[], Awaitable[Response]]
) -> Response:
    conductor = asking.server.conductor
    try:
        response = await endpoint()
    except asyncio.CancelledError:
        await asyncio.wait({_started(_released(conductor, claim))}, timeout=PATIENCE)
        raise
    except BaseException:
        await _to_its_end(_released(conductor, claim))
        raise
    if response.status >= _REFUSED:
        await _to_its_end(_released(conductor, claim))
        return response
    stored = HttpResponse(response.status, response.headers, response.body)
    word = claims.Settlement(claim, to_stored(stored, Kept()))
    await _to_its_end(conductor.arun(once_through(lambda sql: claims.settle(sql, [word]))))
    return response


async def _claimed(conductor: Conductor, build: Callable[..., Any]) -> Claimed:
    """The answer to a claim. One that is won by nobody is given back."""
    claiming = asyncio.ensure_future(conductor.arun(once_through(build)))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        await _to_its_end(_given_back(conductor, claiming))
        raise


async def _given_back(conductor: Conductor, claiming: Awaitable[Claimed]) -> None:
    with suppress(Exception):  # It is the answer of a request that nobody waits for.
        answer = await claiming
        if isinstance(answer, Won):
            await _released(conductor, answer.claim)


async def _released(conductor: Conductor, claim: Claim) -> None:
    """Free a key. Where that fails, what the request has come to is still its answer."""
    try:
        await conductor.arun(once_through(lambda sql: claims.release(sql, [claim])))
    except OnefoldError as error:
        log.warning("The key of a request is not free before its lease has ended: %s", error)


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await what must not be broken off; where nobody waits for it any more, it goes on alone."""
    task = _started(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=PATIENCE)
        raise


def _started(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    task = asyncio.create_task(work)
    _going_on.add(task)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[Any]) -> None:
    _going_on.discard(task)
    if not task.cancelled():
        task.exception()  # Or it would be complained of that nobody has looked.


def _again(answer: Replay, request: HttpRequest) -> Response:
    try:
        stored = from_stored(answer.result)
    except UnreadableAnswer as error:
        log.error("The stored answer of a key cannot be read: %s", error)  # noqa: TRY400
        raise Refused(problems.outcome_unknown()) from None
    again = replay(stored, request=request)
    headers = tuple(header for header in again.headers if header[0].lower() != "content-length")
    return Response(again.status, headers, again.body)


def _fingerprint(request: HttpRequest, body: bytes) -> str:
    # The fence says which delivery is spoken for: it is part of what is said.
    fences = [value for name, value in request.headers if name.lower() == FENCE]
    parts = (request.method, request.path, request.query, *fences)
    digest = hashlib.sha256("\n".join(parts).encode("latin-1", "replace"))
    digest.update(b"\n")
    digest.update(body)
    return f"1.raw:{digest.hexdigest()}"
