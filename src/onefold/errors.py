"""Every error that Onefold raises: a message, and its evidence as fields.

    OnefoldError
    ├── UsageError                 you called us wrongly; fix the code
    │   ├── InvalidInput               a value is not valid; nothing was stored
    │   ├── ConflictingOptions         two options contradict each other
    │   ├── NoTransaction              `within` needs an open transaction
    │   ├── WrongConnection            not a usable connection, or to another database
    │   ├── WouldDeadlock              this thread would wait for its own open transaction
    │   ├── ShardsDiffer               the database has another number of shards
    │   ├── StepsChanged               a rerun runs other steps than the earlier run
    │   └── Closed                     the Onefold object has been closed
    ├── Conflict                   another caller was first; expected in operation
    │   ├── AlreadyEnqueued            `on_duplicate="raise"` found a holder
    │   ├── KeyReused                  the same key with a different request
    │   ├── Busy                       the first attempt with this key is still at work
    │   ├── OutcomeUnknown             the first attempt vanished; its effect is unknown
    │   ├── StepFailed                 a step of this job failed for good in an earlier attempt
    │   ├── LeaseLost                  this delivery, claim or lock is no longer yours
    │   ├── JobNotFound                no such job for this tenant
    │   ├── QueueNotFound              the server has no such queue for this tenant
    │   ├── ScheduleNotFound           no such schedule for this tenant
    │   ├── QueueNotEmpty              the queue to remove still has jobs
    │   ├── WrongState                 the state of the job does not allow the call
    │   ├── Gone                       only a tombstone of the job is left
    │   ├── JobFailed                  the awaited job is dead or cancelled
    │   ├── ResultTimeout              the job has not ended in time; also a TimeoutError
    │   └── TooOld                     older than the memory of the ledger
    ├── WorkFailed                 a handler did not end by itself
    │   ├── JobTimeout                 it exceeded its timeout
    │   └── ProcessDied                the process that ran it is gone
    └── DatabaseError              the database could not do it
        ├── DatabaseBusy               another connection holds a lock; try again
        ├── DatabaseUnavailable        unreachable, read-only, or out of space
        ├── SerializationConflict      the database rejected your transaction; retry all of it
        ├── SchemaTooNew               upgrade this process
        └── SchemaOutdated             run `onefold migrate`

`status` is the HTTP status of an error. `Needs` names the package of a missing optional import.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta
    from types import TracebackType


class OnefoldError(Exception):
    """The root of the tree; catch it to catch every error of Onefold."""

    status: ClassVar[int] = 500

    def __init__(self, message: str, **evidence: object) -> None:
        """`message` is for people; `evidence` becomes the attributes of the error."""
        super().__init__(message)
        self.evidence: Mapping[str, object] = evidence
        for name, value in evidence.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling (a process pool sends errors back), whatever the constructor takes."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[OnefoldError], args: tuple[object, ...], fields: dict[str, object]
) -> OnefoldError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class UsageError(OnefoldError):
    """You called us wrongly; the fix is in your code."""

    status = 400


class InvalidInput(UsageError):
    """A value is not valid. Nothing was stored."""

    field: str
    reason: str

    def __init__(self, field: str, reason: str, *, item: int | None = None) -> None:
        """`field` names the argument, `item` its place in a batch."""
        where = field if item is None else f"item {item}: {field}"
        super().__init__(f"{where} {reason}", field=field, reason=reason, item=item)

    item: int | None

    def at(self, item: int) -> InvalidInput:
        """The same error with the item of a batch."""
        return type(self)(self.field, self.reason, item=item)


class ConflictingOptions(InvalidInput):
    """Two options contradict each other. Nothing was stored."""


class NoTransaction(UsageError):
    """`within` received a connection without an open transaction."""

    def __init__(self, connection: object) -> None:
        super().__init__(
            f"{_name(connection)} has no open transaction and will not open one by itself, so the"
            " job would be committed apart from your rows. Open a transaction around the call.",
            connection=_name(connection),
        )


class WrongConnection(UsageError):
    """`within` cannot work with this connection."""

    def __init__(self, connection: object, reason: str) -> None:
        """`reason` says what is wrong and what to do."""
        super().__init__(
            f"{_name(connection)} {reason}", connection=_name(connection), reason=reason
        )


class WouldDeadlock(UsageError):
    """This thread has an open SQLite transaction and would wait for itself."""

    def __init__(self) -> None:
        super().__init__(
            "This thread has an open write transaction on the same SQLite file, so this call would"
            " wait for itself. Use within(connection) to join that transaction, or commit it first."
        )


class ShardsDiffer(UsageError):
    """The database has another number of shards. With two numbers, one key could be won twice."""

    requested: int
    found: int

    def __init__(self, *, requested: int, found: int, where: str) -> None:
        """`found` is the number that the first migrate has stored."""
        super().__init__(
            f"{where} has {found} shard{'s' if found != 1 else ''}, and this process requests"
            f" {requested}. The first migrate fixes the number: set shards={found}, or omit it.",
            requested=requested,
            found=found,
            where=where,
        )


class StepsChanged(UsageError):
    """A rerun runs a new step at the place of a step of an earlier attempt."""

    requested: str
    expected: str

    def __init__(self, *, requested: str, expected: str) -> None:
        """`expected` is the step that came at this place in an earlier attempt."""
        super().__init__(
            f"This run requests the step {requested!r} where an earlier attempt of the job ran the"
            f" step {expected!r}, so the code has changed. Finish such jobs with the old code, or"
            " replay them with fresh=True. Give steps whose order varies a key:"
            " run.using(key=...).",
            requested=requested,
            expected=expected,
        )


class Closed(UsageError):
    """The Onefold object has been closed."""

    def __init__(self) -> None:
        super().__init__("This Onefold object is closed. Make a new one.")


def _name(connection: object) -> str:
    kind = type(connection)
    return f"{kind.__module__}.{kind.__qualname__}"


class Conflict(OnefoldError):
    """Another caller was first."""

    status = 409


class AlreadyEnqueued(Conflict):
    """`on_duplicate="raise"` found a holder of the key. Nothing of the call was stored."""

    holder_id: str
    key: str
    item: int | None

    def __init__(
        self, *, key: str, holder_id: str, state: str | None, item: int | None = None
    ) -> None:
        """`holder_id` is the job that has the key, `item` the place in a batch."""
        super().__init__(
            f"{_place(item)} key {key!r} is held by job {holder_id} ({state})."
            ' Use on_duplicate="keep" to receive that job instead.',
            key=key,
            holder_id=holder_id,
            state=state,
            item=item,
        )


def _place(item: int | None) -> str:
    return "The" if item is None else f"item {item}: the"


class KeyReused(Conflict):
    """The same key came with a different request."""

    status = 422
    key: str

    def __init__(self, *, key: str, holder_id: str | None = None, item: int | None = None) -> None:
        super().__init__(
            f"{_place(item)} key {key!r} was used before with a different request."
            " Use a new key for a new request.",
            key=key,
            holder_id=holder_id,
            item=item,
        )


class Busy(Conflict):
    """The first attempt with this key is still at work. `claim()` returns it, too."""

    __match_args__ = ("retry_after",)
    key: str
    retry_after: timedelta

    def __init__(self, *, key: str, retry_after: timedelta) -> None:
        """`retry_after` is when a new attempt makes sense."""
        super().__init__(
            f"The key {key!r} is held by another attempt."
            f" Try again in {retry_after.total_seconds():g} seconds.",
            key=key,
            retry_after=retry_after,
        )


class OutcomeUnknown(Conflict):
    """An attempt vanished or raised, must not be repeated, and its effect may have happened."""

    key: str
    since: datetime | None
    verifiable: bool
    """True if a later attempt calls `verify` again. Raised by a job handler, it is a retry."""

    def __init__(
        self, *, key: str, since: datetime | None = None, verifiable: bool = False
    ) -> None:
        """`since` is when its lease ended."""
        super().__init__(
            f"The attempt at {key!r} ended without a known outcome, so its effect may or may not"
            " have happened. Find out (verify=), then settle or release the key.",
            key=key,
            since=since,
            verifiable=verifiable,
        )


class StepFailed(Conflict):
    """A step failed for good in an earlier attempt, with an exception that cannot be rebuilt."""

    step: str
    error_type: str
    reason: str

    def __init__(self, *, step: str, error_type: str, reason: str) -> None:
        super().__init__(
            f"The step {step!r} failed for good in an earlier attempt of this job:"
            f" {error_type}: {reason}. Replay the job with fresh=True to try it again.",
            step=step,
            error_type=error_type,
            reason=reason,
        )


class LeaseLost(Conflict):
    """This delivery, claim or lock is no longer yours; nothing was written."""

    fence: int

    def __init__(self, subject: str, *, fence: int) -> None:
        """`subject` names the job or key, `fence` the delivery that lost it."""
        super().__init__(
            f"{subject} is no longer held under fence {fence}: it ended, or another holder has it."
            " Nothing was written; stop working on it.",
            subject=subject,
            fence=fence,
        )


class JobNotFound(Conflict):
    """No such job for this tenant."""

    status = 404
    job_id: str

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"Job {job_id} does not exist: it never existed, was pruned, or is not committed yet.",
            job_id=job_id,
        )


class QueueNotFound(Conflict):
    """The server has no such queue for this tenant. `queues.save` creates one."""

    status = 404
    queue: str

    def __init__(self, queue: str) -> None:
        super().__init__(f"There is no queue {queue!r}.", queue=queue)


class ScheduleNotFound(Conflict):
    """No such schedule for this tenant."""

    status = 404
    name: str

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The schedule {name!r} does not exist: it was never saved, or has been deleted.",
            name=name,
        )


class QueueNotEmpty(Conflict):
    """The queue has queued or running jobs."""

    name: str

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The queue {name!r} has jobs that have not ended. Wait until they have, or delete the"
            " queue with force=true, which also deletes its jobs.",
            name=name,
        )


class WrongState(Conflict):
    """The job is in a state that does not allow the call."""

    job_id: str

    def __init__(self, job_id: str, *, state: str, wanted: str) -> None:
        """`wanted` describes the states that would allow it."""
        super().__init__(
            f"Job {job_id} is {state}; this needs {wanted}.",
            job_id=job_id,
            state=state,
            wanted=wanted,
        )


class Gone(Conflict):
    """Only a tombstone of the job is left: it holds its key, but cannot run again."""

    status = 410
    job_id: str

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"Job {job_id} has been pruned; only a tombstone that holds its key is left."
            " Enqueue a new job.",
            job_id=job_id,
        )


class JobFailed(Conflict):
    """The awaited job is dead or cancelled, so it has no result."""

    job_id: str
    kind: str
    state: str
    reason: str | None
    error: Mapping[str, object] | None
    """The last failure: type and message."""

    def __init__(
        self,
        job_id: str,
        *,
        kind: str,
        state: str,
        reason: str | None,
        error: Mapping[str, object] | None,
    ) -> None:
        why = "" if reason is None else f" ({reason})"
        failure = "" if error is None else f": {error.get('type')}: {error.get('message')}"
        super().__init__(
            f"Job {job_id} ({kind}) is {state}{why}{failure}. It has no result. Replay it.",
            job_id=job_id,
            kind=kind,
            state=state,
            reason=reason,
            error=error,
        )


class ResultTimeout(Conflict, TimeoutError):
    """The job has not ended in time. It continues; wait again."""

    status = 408
    job_id: str
    state: str

    def __init__(self, job_id: str, *, state: str, timeout: timedelta) -> None:
        super().__init__(
            f"Job {job_id} is still {state} after {timeout.total_seconds():g} seconds. It was"
            " not stopped: wait again, or set a longer timeout.",
            job_id=job_id,
            state=state,
            timeout=timeout,
        )


class TooOld(Conflict):
    """The attempt is older than the memory of the ledger, so it may be a duplicate."""

    key: str

    def __init__(self, *, key: str, issued_at: datetime, horizon: datetime) -> None:
        """`horizon` is the oldest time that the ledger remembers."""
        super().__init__(
            f"{key!r} was issued at {issued_at.isoformat()}. Keys before {horizon.isoformat()} are"
            " no longer stored, so it may have been processed already, and is rejected.",
            key=key,
            issued_at=issued_at,
            horizon=horizon,
        )


class DatabaseError(OnefoldError):
    """The database could not do it."""

    status = 503


class DatabaseBusy(DatabaseError):
    """Another connection holds a lock for longer than the allowed wait."""

    waited: timedelta

    def __init__(self, reason: str, *, waited: timedelta) -> None:
        how_long = f"stayed busy for {waited.total_seconds():g} seconds" if waited else "is busy"
        super().__init__(
            f"The database {how_long}: {reason}",
            reason=reason,
            waited=waited,
        )


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached or cannot write."""

    def __init__(self, where: str, reason: str) -> None:
        """`where` is the database without its password."""
        super().__init__(f"{where}: {reason}", where=where, reason=reason)


class SerializationConflict(DatabaseError):
    """The database rejected your transaction because of its isolation. Retry all of it."""

    status = 409

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The database rejected this transaction: {reason}. Roll back and run the whole"
            " transaction again (READ COMMITTED, or BEGIN IMMEDIATE on SQLite, avoids this).",
            reason=reason,
        )


class SchemaTooNew(DatabaseError):
    """A later version changed the database's tables in a way that this version cannot use."""

    found: int
    needed: int
    known: int

    def __init__(self, *, found: int, needed: int, known: int, where: str) -> None:
        """`needed` is the oldest schema whose code can use the tables; `known` is this code's."""
        super().__init__(
            f"The database is at schema {found}, which needs a version of Onefold that knows schema"
            f" {needed} or later; this version knows {known}. Upgrade Onefold here, or restore the"
            f" database from before the migration: {where}.",
            found=found,
            needed=needed,
            known=known,
            where=where,
        )


class SchemaOutdated(DatabaseError):
    """The database's tables are missing or older than this version needs."""

    found: int
    needed: int
    unreleased: bool

    def __init__(
        self,
        *,
        found: int,
        needed: int,
        where: str,
        schema: str = "onefold",
        unreleased: bool = False,
    ) -> None:
        """`found` is 0 if there are no tables; `schema` is PostgreSQL's.

        `unreleased` tables were made by a copy of Onefold between two releases.
        """
        state = f"is at schema {found}" if found else "has no Onefold tables"
        command = f"onefold migrate --database {shlex.quote(where)}"
        if schema != "onefold":
            command += f" --schema {schema}"
        message = (
            "The tables of the database were made by an unreleased version of Onefold, and cannot"
            f" be migrated: {where}. Use another database, or run `{command} --fresh`. It asks, and"
            " then deletes all jobs and keys that the database has."
            if unreleased
            else f"The database {state} and this version needs schema {needed}."
            f" Run `{command}` and start again."
        )
        super().__init__(
            message, found=found, needed=needed, where=where, schema=schema, unreleased=unreleased
        )


class WorkFailed(OnefoldError):
    """A handler did not end by itself."""


class JobTimeout(WorkFailed):
    """A handler exceeded its timeout."""

    timeout: timedelta

    def __init__(self, timeout: timedelta) -> None:
        super().__init__(
            f"The handler took longer than {timeout.total_seconds():g} s, its timeout. Set a"
            " longer timeout=, or give it less work.",
            timeout=timeout,
        )


class ProcessDied(WorkFailed):
    """The process that ran a handler is gone."""

    exit_code: int | None

    def __init__(self, exit_code: int | None) -> None:
        """`exit_code` is negative for a signal."""
        how = "was killed" if exit_code is None else f"ended with status {exit_code}"
        if exit_code is not None and exit_code < 0:
            how = f"was killed by signal {-exit_code}"
        super().__init__(
            f"The process that ran the handler {how}. Look for a crash in C code, or for a lack of"
            " memory.",
            exit_code=exit_code,
        )


class Needs:
    """`with Needs("onefold[flask]"): import flask` names the package if the import fails."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __enter__(self) -> None:
        """The imports follow."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, ModuleNotFoundError):
            message = f"{error.name} is not installed. Install it: pip install '{self._package}'"
            raise ImportError(message, name=error.name) from error  # noqa: TRY004 - not a wrong type
