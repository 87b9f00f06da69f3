"""Order: ignore what is older than the last applied, per object, by the event's own time.

Senders promise no order. A row per object has the time of what was last applied. It is written in
the transaction of the handler, and only if it is still as it was seen: the database decides.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from onefold.errors import Busy, DatabaseBusy
from onefold.model.claim import ClaimKey, Found, TakeOver, Wanted, Won, want
from onefold.operations import claims
from onefold.operations.keys import ROUNDS

if TYPE_CHECKING:
    from onefold.model.claim import Claim
    from onefold.operations.statement import Operation, Sql

Ties: TypeAlias = Literal["apply", "ignore"]
"""What of events of the same time: many senders tell no more than the second."""

_WHOLE: Final = "0123456789-"


def apply_if_newer(
    sql: Sql, key: ClaimKey, at: int, *, ties: Ties, retention: timedelta | None
) -> Operation[bool]:
    """Write down that an object is now as of `at` (microseconds); False where it is newer."""
    for _ in range(ROUNDS):
        wanted = want(key, lease=None, retention=retention)
        answer = yield from claims.claim(sql, wanted)
        if isinstance(answer, Won):
            return (yield from _write(sql, answer.claim, at))
        if isinstance(answer, Busy):
            # The first event of this object is being applied in another transaction.
            raise answer
        seen = yield from claims.find(sql, key)
        if seen is None:
            continue
        if not _is_newer(at, _last(seen), ties):
            return False
        taken = yield from claims.take_over(sql, wanted, _as_seen(seen, wanted))
        if taken is not None:
            return (yield from _write(sql, taken, at))
    raise DatabaseBusy(
        f"the order of {key.key!r} was written {ROUNDS} times while we looked", waited=timedelta(0)
    )


def _write(sql: Sql, claim: Claim, at: int) -> Operation[bool]:
    yield from claims.settle(sql, [claims.Settlement(claim, str(at))])
    return True


def _as_seen(seen: Found, wanted: Wanted) -> TakeOver:
    return TakeOver(seen, wanted.id, fresh=True)


def _last(seen: Found) -> int | None:
    """The time that is stored; None where an operator has put something else there."""
    text = seen.result or ""
    return int(text) if text and all(sign in _WHOLE for sign in text) else None


def _is_newer(at: int, last: int | None, ties: Ties) -> bool:
    if last is None or at > last:
        return True
    return at == last and ties == "apply"
