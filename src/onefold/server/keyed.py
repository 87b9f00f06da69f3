"""The Idempotency-Key of a POST whose endpoint does not look at it: claim, run, settle, replay.

What these endpoints do may be done again without harm, so a claim whose process died is taken over
and its endpoint runs again; what it answered, if it did, is given again byte for byte.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from onefold.calls.procedure import once_through
from onefold.claims import Mismatch, Replay, Unknown, Won
from onefold.errors import Busy
from onefold.model.claim import ClaimKey, want
from onefold.operations import claims
from onefold.server.outgoing import Response
from onefold.surfaces.http import problem
from onefold.surfaces.http.answer import Answer, Kept, from_stored, to_stored
from onefold.surfaces.http.problem import Refused
from onefold.surfaces.http.replay import replay

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from onefold.claims import Claim
    from onefold.server.asking import Asking
    from onefold.surfaces.http.request import Request

LEASE: Final = timedelta(minutes=2)
"""Longer than any request may take."""
KEPT: Final = timedelta(hours=24)
SCOPE: Final = "v1"
_REFUSED: Final = 400


async def run_keyed(
    asking: Asking,
    request: Request,
    body: bytes,
    endpoint: Callable[[], Awaitable[Response]],
) -> Response:
    """The answer of the first request with this key. A refusal leaves the key free."""
    assert asking.key is not None
    key = ClaimKey(asking.tenant, "http", SCOPE, asking.key)
    wanted = want(
        key, fingerprint=_fingerprint(request, body), lease=LEASE, takeover="rerun", retention=KEPT
    )
    conductor = asking.server.conductor
    answer = await conductor.arun(once_through(partial(claims.claim, wanted=wanted)))
    if not isinstance(answer, Won):
        conductor.suppressing.note(key, asking.request_id)
    match answer:
        case Won(claim):
            return await _first(asking, claim, endpoint)
        case Replay():
            return _again(answer, request)
        case Busy():
            raise Refused(problem.in_progress(answer.retry_after))
        case Mismatch():
            raise Refused(problem.key_reused())
        case Unknown():
            raise Refused(problem.outcome_unknown())
        case _:
            raise AssertionError(answer)


async def _first(
    asking: Asking, claim: Claim, endpoint: Callable[[], Awaitable[Response]]
) -> Response:
    conductor = asking.server.conductor
    try:
        response = await endpoint()
    except BaseException:
        await conductor.arun(once_through(lambda sql: claims.release(sql, [claim])))
        raise
    if response.status >= _REFUSED:
        await conductor.arun(once_through(lambda sql: claims.release(sql, [claim])))
        return response
    stored = Answer(response.status, response.headers, response.body)
    word = claims.Settlement(claim, to_stored(stored, Kept()))
    await conductor.arun(once_through(lambda sql: claims.settle(sql, [word])))
    return response


def _again(answer: Replay, request: Request) -> Response:
    stored = from_stored(answer.result)
    again = replay(stored, request=request)
    headers = tuple(header for header in again.headers if header[0].lower() != "content-length")
    return Response(again.status, headers, again.body)


def _fingerprint(request: Request, body: bytes) -> str:
    parts = (request.method, request.path, request.query)
    digest = hashlib.sha256("\n".join(parts).encode("latin-1", "replace"))
    digest.update(b"\n")
    digest.update(body)
    return f"1.raw:{digest.hexdigest()}"
