"""Seven patterns for handlers whose effect happens once, even if the job runs several times.

python -m examples.handlers ledger              # enqueue, run a worker, print the result
onefold worker examples.handlers:onefold        # a worker for all of them

On SQLite, in `examples.db`; ONEFOLD_DATABASE names another database.
"""

from examples.handlers import (
    cached_result,
    existence_check,
    ledger,
    lock,
    third_party_key,
    unique_constraint,
    upsert,
)
from examples.handlers.app import onefold

__all__ = [
    "cached_result",
    "existence_check",
    "ledger",
    "lock",
    "onefold",
    "third_party_key",
    "unique_constraint",
    "upsert",
]
