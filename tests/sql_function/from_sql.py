"""A subject of the contract whose jobs come from SQL: `onefold_enqueue`, `onefold_enqueue_many`.

Everything but the enqueue goes through Onefold itself: what one of them stores, the other finds.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import psycopg
from psycopg import sql

from onefold.calls.jobs import EMPTY
from onefold.errors import AlreadyEnqueued, ConflictingOptions, InvalidInput, KeyReused
from onefold.model.canonical import encode_payload
from onefold.model.job import Enqueued, EnqueuedMany, NewJob
from onefold.model.unique import Unique
from onefold_contract.subjects import SyncSubject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

KEY_REUSED: Final = "OF422"
CONFLICTS: Final = (
    "cannot be given together", "needs a unique_key", "needs on_duplicate", '"raise" contradicts',
)  # fmt: skip
BEYOND: Final = {"backoff"}
"""What a job may have and SQL cannot say: the library stores it, and SQL finds it."""


def call(
    connection: psycopg.Connection[Any], schema: str, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """The row that `onefold_enqueue` answers with; every argument by its name."""
    (row,) = call_all(connection, schema, "onefold_enqueue", arguments)
    return row


def call_all(
    connection: psycopg.Connection[Any], schema: str, name: str, arguments: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The rows that a function answers with."""
    named = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(sql.Identifier(argument), sql.Placeholder(argument))
        for argument in arguments
    )
    text = sql.SQL("select * from {}({})").format(sql.Identifier(schema, name), named)
    cursor = connection.execute(text, dict(arguments))
    columns = [column.name for column in cursor.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def answered(row: Mapping[str, Any]) -> Enqueued:
    """The row as the library says it."""
    assert row["inserted"] is not row["duplicate"]
    return Enqueued(
        str(row["id"]),
        duplicate=row["duplicate"],
        state=row["state"],
        mismatch=row["mismatch"],
        replaced=row["replaced"],
    )


def translated(error: psycopg.Error) -> Exception:
    """The library's error that says the same."""
    told = error.diag
    if error.sqlstate == "22023":
        field = told.column_name or ""
        found = re.fullmatch(rf"(?:item (\d+): )?{field} (.*)", told.message_primary or "")
        assert found is not None, told.message_primary
        item = None if found[1] is None else int(found[1])
        kind = ConflictingOptions if found[2].startswith(CONFLICTS) else InvalidInput
        return kind(field, found[2], item=item)
    if error.sqlstate == KEY_REUSED:
        return KeyReused(**json.loads(told.message_detail or ""))
    if error.sqlstate == "23505":
        assert told.constraint_name == "job_unique"
        return AlreadyEnqueued(**json.loads(told.message_detail or ""))
    return error


class FromSql(SyncSubject):
    """Each enqueue is a call of the function, in a transaction of the caller's."""

    def call(self, path: str, *args: Any, **options: Any) -> Any:
        if options.keys() & BEYOND:
            return super().call(path, *args, **options)
        if path == "enqueue":
            return self._enqueue_in_sql(*args, **options)
        if path == "enqueue_many":
            return self._enqueue_many_in_sql(*args, **options)
        return super().call(path, *args, **options)

    def _enqueue_many_in_sql(self, new_jobs: Sequence[NewJob], **options: Any) -> EnqueuedMany:
        batch = msgspec.json.encode([members(job) for job in new_jobs]).decode()
        rows = self._ask("onefold_enqueue_many", {"jobs": batch, **self._sql_context, **options})
        assert [row["item"] for row in rows] == list(range(len(rows)))
        return EnqueuedMany([answered(row) for row in rows])

    def _enqueue_in_sql(self, kind: str, payload: Any = EMPTY, **options: Any) -> Enqueued:
        rule = options.pop("unique", None)
        if rule is not None and "unique_key" not in options:
            options["unique_key"] = derived(rule, kind, payload)
        asked = {"kind": kind, "payload": encode_payload(payload), **self._sql_context, **options}
        (row,) = self._ask("onefold_enqueue", asked)
        return answered(row)

    @property
    def _sql_context(self) -> dict[str, Any]:
        return {"tenant": self.tenant_name, "clock": self.clock.now}

    def _ask(self, name: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        if not self.connections:
            self.connections.append(psycopg.connect(self.url))
        connection: psycopg.Connection[Any] = self.connections[0]
        with connection.transaction():
            try:
                # PostgreSQL takes back whatever the function has done before an error of its own.
                with connection.transaction():
                    rows = call_all(connection, self.schema, name, arguments)
            except psycopg.Error as error:
                raise translated(error) from error
            connection.execute("select 1")
        return rows

    def close(self) -> None:
        """Close the connection too."""
        for connection in self.connections:
            connection.close()
        super().close()


def derived(rule: object, kind: str, payload: Any) -> str:
    """The key that an application computes before it asks."""
    if isinstance(rule, Unique):
        return rule.key(kind, payload)
    return cast("Callable[[str, Any], str]", rule)(kind, payload)


def members(job: NewJob) -> dict[str, Any]:
    """What a job says beyond the defaults, as an item of a batch."""
    given = msgspec.structs.asdict(job)
    rule = given.pop("unique")
    said: dict[str, Any] = {
        name: value for name, value in given.items() if value != getattr(PLAIN, name)
    }
    if rule is not None and "unique_key" not in said:
        said["unique_key"] = derived(rule, job.kind, job.payload)
    return {**said, "kind": job.kind, "payload": job.payload}


PLAIN: Final = NewJob("")
