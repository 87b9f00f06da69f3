"""The answers of `claim`, what `verify` says, and the types of `once` and `lock`.

`Busy` is an answer and an error in one: `claim` returns it, `once` raises it.
"""

from onefold.effects.lock import Lock
from onefold.effects.once import OnceClaim, OnceContext
from onefold.effects.verify import Done, NotDone
from onefold.errors import Busy
from onefold.model.claim import Claim, ClaimAnswer, Mismatch, Replay, Unknown, Won

__all__ = [
    "Busy",
    "Claim",
    "ClaimAnswer",
    "Done",
    "Lock",
    "Mismatch",
    "NotDone",
    "OnceClaim",
    "OnceContext",
    "Replay",
    "Unknown",
    "Won",
]
