"""Every error that Onefold raises: a sentence to act on, with its evidence as fields.

    OnefoldError
    ├── UsageError                 you called us wrongly; fix the code
    │   ├── InvalidInput               a value cannot be accepted; nothing was stored
    │   ├── ConflictingOptions         two options contradict each other
    │   ├── NoTransaction              `within` needs a transaction, and none is or will be open
    │   ├── WrongConnection            not a connection we can use, or to another database
    │   ├── WouldDeadlock              this thread would wait for its own open transaction
    │   ├── ShardsDiffer               the database was made with another number of shards
    │   ├── StepsChanged               a rerun asks for other steps than the run before it
    │   └── Closed                     the Onefold object has been closed
    ├── Conflict                   somebody else got there first; normal in life
    │   ├── AlreadyEnqueued            `on_duplicate="raise"` met a holder
    │   ├── KeyReused                  the same key with a different request
    │   ├── Busy                       the first attempt with this key is still at work
    │   ├── OutcomeUnknown             the first attempt vanished; nobody knows how far it came
    │   ├── StepFailed                 a step of this job failed for good in an earlier attempt
    │   ├── LeaseLost                  this delivery, claim or lock is no longer yours
    │   ├── JobNotFound                no such job for this tenant
    │   ├── ScheduleNotFound           no such schedule for this tenant
    │   ├── QueueNotEmpty              the queue that was to be removed has jobs in it
    │   ├── WrongState                 the job is in a state that does not allow this
    │   ├── Gone                       only a tombstone of the job is left
    │   ├── JobFailed                  the job whose result was waited for is dead or cancelled
    │   ├── ResultTimeout              it has not ended in time; also a TimeoutError
    │   └── TooOld                     older than what the ledger still remembers
    ├── WorkFailed                 a handler did not come to its own end
    │   ├── JobTimeout                 it took longer than it may
    │   └── ProcessDied                the process that ran it is gone
    └── DatabaseError              the store could not do it
        ├── DatabaseBusy               somebody else holds what we need; try again
        ├── DatabaseUnavailable        unreachable, read-only, or out of space
        ├── SerializationConflict      the database refused your transaction; retry the whole of it
        ├── SchemaTooNew               upgrade this process
        └── SchemaOutdated             run `onefold migrate`

`status` is the HTTP status an error has on the wire, so that no layer above keeps a table.
"""

from __future__ import annotations

from onefold.errors.conflict import (
    AlreadyEnqueued,
    Busy,
    Conflict,
    Gone,
    JobFailed,
    JobNotFound,
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
    QueueNotEmpty,
    ResultTimeout,
    ScheduleNotFound,
    StepFailed,
    TooOld,
    WrongState,
)
from onefold.errors.database import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    SchemaOutdated,
    SchemaTooNew,
    SerializationConflict,
)
from onefold.errors.root import (
    OnefoldError,
)
from onefold.errors.usage import (
    Closed,
    ConflictingOptions,
    InvalidInput,
    NoTransaction,
    ShardsDiffer,
    StepsChanged,
    UsageError,
    WouldDeadlock,
    WrongConnection,
)
from onefold.errors.work import (
    JobTimeout,
    ProcessDied,
    WorkFailed,
)

__all__ = [
    "AlreadyEnqueued",
    "Busy",
    "Closed",
    "Conflict",
    "ConflictingOptions",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseUnavailable",
    "Gone",
    "InvalidInput",
    "JobFailed",
    "JobNotFound",
    "JobTimeout",
    "KeyReused",
    "LeaseLost",
    "NoTransaction",
    "OnefoldError",
    "OutcomeUnknown",
    "ProcessDied",
    "QueueNotEmpty",
    "ResultTimeout",
    "ScheduleNotFound",
    "SchemaOutdated",
    "SchemaTooNew",
    "SerializationConflict",
    "ShardsDiffer",
    "StepFailed",
    "StepsChanged",
    "TooOld",
    "UsageError",
    "WorkFailed",
    "WouldDeadlock",
    "WrongConnection",
    "WrongState",
]

# They are known by the name that they are caught by, whichever file they are written in.
for _name in __all__:
    globals()[_name].__module__ = __name__
