"""The answers of `claim`, what `verify` says, and the types of `once` and `lock`.

`Busy` is an answer and an error in one: `claim` returns it, `once` raises it.
"""

from onefold.effects.lock import Lock
from onefold.effects.once import Once, OnceClaim
from onefold.errors import Busy
from onefold.model.claim import Claim, ClaimAnswer, Mismatch, Replay, Unknown, Won
from onefold.model.verify import Done, NotDone

__all__ = [
    "Busy",
    "Claim",
    "ClaimAnswer",
    "Done",
    "Lock",
    "Mismatch",
    "NotDone",
    "Once",
    "OnceClaim",
    "Replay",
    "Unknown",
    "Won",
]
