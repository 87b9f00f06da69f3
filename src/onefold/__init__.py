"""Onefold: manifold requests, onefold effect.

A durable job queue and an idempotency toolkit on one database: SQLite embedded by default,
PostgreSQL in production.
"""

from onefold.app.onefold import Onefold, Tenant, Within
from onefold.app.outside_transaction import OutsideTransactionWarning
from onefold.effects.run import Run
from onefold.effects.verify import Done, NotDone
from onefold.errors import (
    AlreadyEnqueued,
    Busy,
    Closed,
    Conflict,
    ConflictingOptions,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    Gone,
    InvalidInput,
    JobFailed,
    JobNotFound,
    JobTimeout,
    KeyReused,
    LeaseLost,
    NoTransaction,
    OnefoldError,
    OutcomeUnknown,
    ProcessDied,
    QueueNotEmpty,
    QueueNotFound,
    ResultTimeout,
    ScheduleNotFound,
    SchemaOutdated,
    SchemaTooNew,
    SerializationConflict,
    ShardsDiffer,
    StepFailed,
    StepsChanged,
    TooOld,
    UsageError,
    WorkFailed,
    WouldDeadlock,
    WrongConnection,
    WrongState,
)
from onefold.jobs.arguments import Payload
from onefold.jobs.job_function import DeclaredJob, Enqueuer, JobCall
from onefold.model.api_key import Admission, ApiKey, NewApiKey
from onefold.model.attempt import Attempt
from onefold.model.delivery import Delivery, Ended, Heartbeat
from onefold.model.insert_once import Existing, Inserted, is_unique_violation
from onefold.model.job import (
    Enqueued,
    EnqueuedMany,
    Job,
    JobPage,
    NewJob,
)
from onefold.model.lifecycle import Retention
from onefold.model.limit import Limit, Rate
from onefold.model.outcome import Bury, Cancel, Defer, Retry
from onefold.model.queue import (
    Outlook,
    Queue,
    QueueCounts,
    QueuePage,
    QueueSettings,
    SigningSecret,
)
from onefold.model.retry import Exponential, Fixed
from onefold.model.schedule import Schedule, Tick, Ticked
from onefold.model.statistics import (
    Statistics,
    StatisticsBucket,
    StatisticsTotal,
    WorkerStatus,
)
from onefold.model.step import Step
from onefold.model.stored_key import (
    Duplicates,
    HeldJob,
    KeyHolder,
    KeyPage,
    StoredKey,
    Suppressed,
    Why,
)
from onefold.model.unique import Unique
from onefold.operations.endings import Rescued, RescuedJob
from onefold.operations.maintenance import Erased, Pruned
from onefold.operations.queues import TakenUnderControl
from onefold.worker.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Admission",
    "AlreadyEnqueued",
    "ApiKey",
    "Attempt",
    "Bury",
    "Busy",
    "Cancel",
    "Closed",
    "Conflict",
    "ConflictingOptions",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseUnavailable",
    "DeclaredJob",
    "Defer",
    "Delivery",
    "Done",
    "Duplicates",
    "Ended",
    "Enqueued",
    "EnqueuedMany",
    "Enqueuer",
    "Erased",
    "Existing",
    "Exponential",
    "Fixed",
    "Gone",
    "Heartbeat",
    "HeldJob",
    "Inserted",
    "InvalidInput",
    "Job",
    "JobCall",
    "JobFailed",
    "JobNotFound",
    "JobPage",
    "JobTimeout",
    "KeyHolder",
    "KeyPage",
    "KeyReused",
    "LeaseLost",
    "Limit",
    "NewApiKey",
    "NewJob",
    "NoTransaction",
    "NotDone",
    "Onefold",
    "OnefoldError",
    "OutcomeUnknown",
    "Outlook",
    "OutsideTransactionWarning",
    "Payload",
    "ProcessDied",
    "Pruned",
    "Queue",
    "QueueCounts",
    "QueueNotEmpty",
    "QueueNotFound",
    "QueuePage",
    "QueueSettings",
    "Rate",
    "Rescued",
    "RescuedJob",
    "ResultTimeout",
    "Retention",
    "Retry",
    "Run",
    "Schedule",
    "ScheduleNotFound",
    "SchemaOutdated",
    "SchemaTooNew",
    "SerializationConflict",
    "ShardsDiffer",
    "SigningSecret",
    "Statistics",
    "StatisticsBucket",
    "StatisticsTotal",
    "Step",
    "StepFailed",
    "StepsChanged",
    "StoredKey",
    "Suppressed",
    "TakenUnderControl",
    "Tenant",
    "Tick",
    "Ticked",
    "TooOld",
    "Unique",
    "UsageError",
    "Why",
    "Within",
    "WorkFailed",
    "Worker",
    "WorkerStatus",
    "WouldDeadlock",
    "WrongConnection",
    "WrongState",
    "is_unique_violation",
]
