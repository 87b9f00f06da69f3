"""The answers of `claim`, and what `verify` says: for `match` statements.

`Busy` is an answer and an error in one: `claim` returns it, `once` raises it.
"""

from onefold.calls.once import Done, NotDone, OnceClaim
from onefold.errors import Busy
from onefold.model.claim import Answer, Claim, Mismatch, Replay, Unknown, Won

__all__ = [
    "Answer",
    "Busy",
    "Claim",
    "Done",
    "Mismatch",
    "NotDone",
    "OnceClaim",
    "Replay",
    "Unknown",
    "Won",
]
