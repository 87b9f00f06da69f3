"""Calls that must not be made twice: what their exceptions mean, and the results of `verify`.

An exception does not tell whether the effect has happened: a read timeout may follow a payment. It
counts as *not done* only if it is declared so, or if it is `NotDone`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from onefold.errors import (
    Busy,
    ConflictingOptions,
    InvalidInput,
    LeaseLost,
    OutcomeUnknown,
    UsageError,
)
from onefold.model import checks
from onefold.model.outcome import Outcome, checked_rules, concerns
from onefold.runtime import Call, Procedure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from onefold.effects.claims import ClaimBackend
    from onefold.model.claim import Claim, Unknown, Wanted
    from onefold.model.outcome import ErrorRule


class Done(msgspec.Struct, frozen=True):
    """`verify` returns it if the effect has happened, with its result."""

    result: Any = None


class NotDone(Exception):
    """The effect has not happened. `verify` returns it; the code that makes the call raises it."""


VerifyResult: TypeAlias = Done | NotDone | None
Verify: TypeAlias = Callable[[str], "VerifyResult | Awaitable[VerifyResult]"]
"""Finds out whether an attempt was done, by its key; None if it cannot tell."""

ENDS_THE_RUN: Final = (Outcome, LeaseLost)
"""They decide how the run ends, not whether the call was done: it stays unknown until the next
run.
"""


def check_doubt(options: Mapping[str, Any]) -> None:
    """Check the options `unsafe`, `verify` and `not_done` of a step."""
    checks.flag(options.get("unsafe", False), "unsafe")
    verify = options.get("verify")
    if verify is not None and not callable(verify):
        raise InvalidInput("verify", f"must be a function, got {verify!r}")
    rules = checked_rules(options.get("not_done", ()), "not_done")
    if not options.get("unsafe") and (rules or verify is not None):
        raise ConflictingOptions(
            "not_done" if rules else "verify",
            "needs unsafe=True: any other step that raises or vanishes is done again",
        )


def is_not_done(error: Exception, rules: Sequence[ErrorRule]) -> bool:
    """Whether an exception means that the effect has not happened."""
    return isinstance(error, NotDone) or concerns(rules, error)


def ask(verify: Verify, key: str, *, label: str) -> Procedure[VerifyResult]:
    """Call `verify`. If it raises, the outcome stays unknown, and it is called again later."""
    try:
        found: object = yield Call(verify, (key,))
    except (Busy, UsageError, *ENDS_THE_RUN):
        raise
    except Exception as error:
        raise OutcomeUnknown(key=label, verifiable=True) from error
    if found is not None and not isinstance(found, Done | NotDone):
        raise InvalidInput("verify", f"must return Done, NotDone or None, got {found!r}")
    return found


def resolve(
    claims: ClaimBackend, wanted: Wanted, unknown: Unknown, found: Done | NotDone, *, result: str
) -> Procedure[Claim | None]:
    """Store what `verify` has found, unless another attempt was faster.

    Returns a claim if the work was not done, and is to be done now. `result` is the JSON text of
    what was done.
    """
    if isinstance(found, NotDone):
        return (yield from claims.take_unknown(wanted, unknown))
    yield from claims.settle_unknown(wanted, unknown, result)
    return None
