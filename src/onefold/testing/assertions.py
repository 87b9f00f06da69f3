"""The calls `assert_idempotent` and `aassert_idempotent`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from onefold.testing.check_options import check_options
from onefold.testing.idempotency import IdempotencyCheck
from onefold.testing.jobs import refuse_event_loop
from onefold.testing.points import Line
from onefold.testing.report import Coverage, NotIdempotent

if TYPE_CHECKING:
    from typing import Unpack

    from onefold.testing.check_options import CheckOptions


def assert_idempotent(handler: Any, *args: Any, **options: Unpack[CheckOptions]) -> Coverage:
    """Prove that work may be delivered twice, also by processes that die: see the guide.

    `handler` is a declared job with its arguments (or with `job.call(…)`), an ASGI or WSGI
    application with a `RouteRequest`, or a function whose first parameter is a connection.

    Raises `NotIdempotent`, whose message is a report. Returns what was tried. Async handlers run in
    an event loop of their own; `aassert_idempotent` runs them in the one of the test.
    """
    __tracebackhide__ = True  # pytest shows the report only
    refuse_event_loop()
    outcome = _check(handler, args, options, None).run()
    if isinstance(outcome, NotIdempotent):
        raise outcome
    return outcome


async def aassert_idempotent(handler: Any, *args: Any, **options: Unpack[CheckOptions]) -> Coverage:
    """`assert_idempotent`, awaited: async handlers run in this event loop."""
    __tracebackhide__ = True
    check = _check(handler, args, options, asyncio.get_running_loop())
    work = asyncio.ensure_future(asyncio.to_thread(check.run))
    try:
        outcome = await asyncio.shield(work)
    except asyncio.CancelledError:
        check.stop()
        await asyncio.wait([work])  # it puts the rows back
        raise
    if isinstance(outcome, NotIdempotent):
        raise outcome
    return outcome


def _check(
    handler: Any,
    args: tuple[Any, ...],
    options: CheckOptions,
    loop: asyncio.AbstractEventLoop | None,
) -> IdempotencyCheck:
    check_options(options)
    frame = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    caller = Line(frame.f_code.co_filename, frame.f_lineno)
    return IdempotencyCheck(handler, args, options, loop, caller)
