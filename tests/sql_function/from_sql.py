"""A subject of the contract whose jobs come from SQL: every enqueue calls `onefold_enqueue`.

All other calls go through the library. So does an enqueue with an option that SQL does not have.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import psycopg
from psycopg import sql

from onefold.errors import AlreadyEnqueued, ConflictingOptions, InvalidInput, KeyReused
from onefold.jobs.enqueue_options import EMPTY
from onefold.model.job import Enqueued
from onefold.model.json_text import encode_payload
from onefold.model.unique import Unique
from onefold_contract.subjects import SyncSubject

KEY_REUSED: Final = "OF422"
CONFLICTS: Final = ("cannot be given together", "needs a unique_key")
NOT_IN_SQL: Final = {"backoff", "retention", "max_wait"}


def call(
    connection: psycopg.Connection[Any], schema: str, arguments: Mapping[str, Any]
) -> Enqueued:
    """Call `onefold_enqueue`, with every argument by its name."""
    named = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(sql.Identifier(argument), sql.Placeholder(argument))
        for argument in arguments
    )
    function = sql.Identifier(schema, "onefold_enqueue")
    columns = sql.SQL("id::text, duplicate, state, mismatch, inserted")
    text = sql.SQL("select {} from {}({})").format(columns, function, named)
    ((job_id, duplicate, state, mismatch, inserted),) = connection.execute(text, arguments)
    assert inserted is not duplicate
    return Enqueued(job_id, duplicate=duplicate, state=state, mismatch=mismatch)


def translated(error: psycopg.Error) -> Exception:
    """The error that the library raises in the same case."""
    diagnostics = error.diag
    if error.sqlstate == "22023":
        field = diagnostics.column_name or ""
        reason = (diagnostics.message_primary or "").removeprefix(f"{field} ")
        kind = ConflictingOptions if reason.startswith(CONFLICTS) else InvalidInput
        return kind(field, reason)
    if error.sqlstate == KEY_REUSED:
        return KeyReused(**json.loads(diagnostics.message_detail or ""))
    if error.sqlstate == "23505":
        assert diagnostics.constraint_name == "job_unique"
        return AlreadyEnqueued(**json.loads(diagnostics.message_detail or ""))
    return error


class FromSql(SyncSubject):
    """Each enqueue calls the function, in a transaction of the caller."""

    def call(self, path: str, *args: Any, **options: Any) -> Any:
        """Call the function for an enqueue, and the library for all other calls."""
        if (
            path != "enqueue"
            or options.keys() & NOT_IN_SQL
            or options.get("on_duplicate") in {"replace", "rerun"}
        ):
            return super().call(path, *args, **options)
        return self._enqueue_in_sql(*args, **options)

    def _enqueue_in_sql(self, kind: str, payload: Any = EMPTY, **options: Any) -> Enqueued:
        rule = options.pop("unique", None)
        if rule is not None and "unique_key" not in options:
            options["unique_key"] = derived(rule, kind, payload)
        options |= {"kind": kind, "payload": encode_payload(payload)}
        options |= {"tenant": self.tenant_name, "clock": self.clock.now}
        if not self.connections:
            self.connections.append(psycopg.connect(self.url))
        connection: psycopg.Connection[Any] = self.connections[0]
        with connection.transaction():
            try:
                # A savepoint: the transaction goes on after an error of the function.
                with connection.transaction():
                    answer = call(connection, self.schema, options)
            except psycopg.Error as error:
                raise translated(error) from error
            connection.execute("select 1")
        return answer

    def close(self) -> None:
        """Close the connection too."""
        for connection in self.connections:
            connection.close()
        super().close()


def derived(rule: object, kind: str, payload: Any) -> str:
    """The key that an application computes before the call."""
    if isinstance(rule, Unique):
        return rule.key(kind, payload)
    return cast("Callable[[str, Any], str]", rule)(kind, payload)
