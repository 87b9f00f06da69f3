"""A warning about jobs that are enqueued outside of the open transaction around the call."""

from __future__ import annotations

import inspect
import logging
import warnings
from typing import TYPE_CHECKING, Final

from onefold.databases.handler_transaction import begun_here

if TYPE_CHECKING:
    from types import FrameType

    from onefold.app.context import Context

_LOGGER: Final = logging.getLogger("onefold")

MESSAGE: Final = (
    "The enqueue of {} is not part of the transaction that is open here: what it stores stays even"
    " if that is rolled back, and may run before it is committed. Enqueue with run.within() in a"
    " job, with once.within() in a route, or with within(connection)."
)

_logged: set[tuple[str, str, int]] = set()
"""The messages and places that were logged before."""


class OutsideTransactionWarning(UserWarning):
    """A plain enqueue inside of `run.transaction()`, or in a route that has a transaction."""


def warn_if_inside(context: Context, kind: str | None = None) -> None:
    """Warn, once per place, if a transaction of ours is open on the same database.

    In a call that is its own task, the place is in asyncio. The kind distinguishes such calls.
    """
    if context.borrowed is not None or begun_here(context.database) is None:
        return
    frame = _caller()
    place = (frame.f_code.co_filename, frame.f_lineno)
    message = MESSAGE.format("several jobs" if kind is None else repr(kind))
    if (message, *place) not in _logged:
        _logged.add((message, *place))
        _LOGGER.warning("%s (%s, line %d)", message, *place)
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__")
    warnings.warn_explicit(message, OutsideTransactionWarning, *place, module, registry)


def _caller() -> FrameType:
    """The innermost frame outside of Onefold."""
    frame = inspect.currentframe()
    assert frame is not None
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("onefold.")
