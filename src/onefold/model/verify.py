"""Calls that must not be made twice: what an exception of one means, and what `verify` answers.

An exception does not say whether the effect has happened: a read timeout may follow a payment. It
counts as *not done* only where it is declared so, or where it is `NotDone`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from onefold.errors import (
    Busy,
    ConflictingOptions,
    InvalidInput,
    LeaseLost,
    OutcomeUnknown,
)
from onefold.model import checks
from onefold.model.outcome import Outcome, checked_rules, concerns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from onefold.model.outcome import ErrorRule


class Done(msgspec.Struct, frozen=True):
    """What `verify` answers where the effect has happened: its result."""

    result: Any = None


class NotDone(Exception):
    """The effect has not happened. `verify` returns it; the code that makes the call raises it."""


VerifyResult: TypeAlias = Done | NotDone | None
Verify: TypeAlias = Callable[[str], "VerifyResult | Awaitable[VerifyResult]"]
"""Finds out what became of an attempt, by its key; None where it cannot tell."""

ENDS_THE_RUN: Final = (Outcome, LeaseLost)
"""They say how the run ends, and nothing about the call: it stays unknown until the next run."""


def check_doubt(options: Mapping[str, Any]) -> None:
    """Check what a step says of this: `unsafe`, `verify` and `not_done`."""
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
    """True where an exception says that the effect has not happened."""
    return isinstance(error, NotDone) or concerns(rules, error)


@contextmanager
def asking(key: str) -> Generator[None]:
    """Around `verify`: where it raises, it cannot tell, and is asked again later."""
    try:
        yield
    except (Busy, *ENDS_THE_RUN):
        raise
    except Exception as error:
        raise OutcomeUnknown(key=key, verifiable=True) from error
