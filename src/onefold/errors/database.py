"""The store could not do it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from onefold.errors.root import OnefoldError

if TYPE_CHECKING:
    from datetime import timedelta


class DatabaseError(OnefoldError):
    """The store could not do it."""

    status = 503


class DatabaseBusy(DatabaseError):
    """Somebody else holds what we need, for longer than we were told to wait."""

    waited: timedelta

    def __init__(self, reason: str, *, waited: timedelta) -> None:
        """`waited` is how long we tried."""
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
    """The database refused your transaction because of its isolation. Retry the whole of it."""

    status = 409

    def __init__(self, reason: str) -> None:
        """`reason` is the database's own sentence."""
        super().__init__(
            f"The database refused this transaction: {reason}. Roll back and run the whole"
            " transaction again (READ COMMITTED, or BEGIN IMMEDIATE on SQLite, avoids this).",
            reason=reason,
        )


class SchemaTooNew(DatabaseError):
    """The database's tables were changed by a later version, in a way that this one cannot use."""

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

    def __init__(self, *, found: int, needed: int, where: str, schema: str = "onefold") -> None:
        """`found` is 0 where there are no tables at all; `schema` is PostgreSQL's."""
        state = f"is at schema {found}" if found else "has no Onefold tables"
        command = f"onefold migrate --database {shlex.quote(where)}"
        if schema != "onefold":
            command += f" --schema {schema}"
        super().__init__(
            f"The database {state} and this version needs {needed}."
            f" Run `{command}` and start again.",
            found=found,
            needed=needed,
            where=where,
            schema=schema,
        )
