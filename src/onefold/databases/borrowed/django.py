"""A Django connection of the caller: `django.db.connection`, or one of `connections`.

Statements run through its cursor, so that Django's checks, wrappers and logs see them.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from onefold.databases import borrowed
from onefold.databases.borrowed import Borrowed, LibraryCursor, LibraryResult
from onefold.databases.borrowed.sqlite import BorrowedSqlite
from onefold.errors import NoTransaction, WrongConnection

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from onefold.databases import Build, Database
    from onefold.databases.borrowed import Parameters

T = TypeVar("T")

_PLACE: Final = re.compile(r"\?(\d+)")


def borrow(lent: Any, database: Database) -> Borrowed:
    """The borrowed form of a Django connection."""
    wrapper = lent
    if not isinstance(wrapper, BaseDatabaseWrapper):
        # `connection` is a proxy for the thread's own connection; caches have such a proxy, too.
        alias = getattr(lent, "alias", None)
        if alias is None:
            raise WrongConnection(lent, borrowed.instead_of(()))
        wrapper = connections[alias]
    borrowed.expect(borrowed.SYSTEMS.get(wrapper.vendor, wrapper.vendor), wrapper, database)
    return BorrowedDjango(wrapper, database)


def atomic(lent: Any, *, durable: bool = True) -> AbstractContextManager[Any]:
    """An `atomic` block of Django on this connection; without `durable`, it may be a savepoint."""
    block: AbstractContextManager[Any] = transaction.atomic(using=lent.alias, durable=durable)
    return block


class BorrowedDjango(Borrowed):
    """A Django connection of the caller."""

    def check(self) -> None:
        """Outside of `atomic`, Django commits each statement by itself by default."""
        wrapper = self.connection
        if wrapper.closed_in_transaction:
            raise borrowed.closed(wrapper)
        # Django's own error explains what to do after a failed block.
        wrapper.validate_no_broken_transaction()
        try:
            autocommit = wrapper.get_autocommit()
        except SynchronousOnlyOperation as error:
            raise WrongConnection(
                wrapper,
                "cannot be used in an event loop. Call a function that has the atomic block and"
                " the enqueue in it, by asgiref's sync_to_async.",
            ) from error
        if autocommit and not wrapper.in_atomic_block:
            raise NoTransaction(wrapper)

    def failed(self) -> bool:
        """As Django or the driver reports."""
        wrapper = self.connection
        if wrapper.needs_rollback or wrapper.closed_in_transaction or wrapper.connection is None:
            return True
        return self._driver_connection().failed()

    def transact(self, build: Build[T], *, write: bool = True) -> T:
        """Run an operation in the open block."""
        self.check()
        return self._driver_connection().transact(build, write=write)

    def _driver_connection(self) -> Borrowed:
        """The driver's connection, with statements that Django runs."""
        wrapper = self.connection
        if wrapper.vendor == "sqlite":
            return BorrowedSqlite(
                wrapper.connection,
                self.database,
                lent=wrapper,
                library=LibraryCursor(partial(_run_on_sqlite, wrapper)),
            )
        from onefold.databases.borrowed.postgres import BorrowedThrough

        return BorrowedThrough(
            wrapper,
            self.database,
            driver=wrapper.connection,
            autocommit=wrapper.connection.autocommit,
            run_text=partial(_run, wrapper),
        )


def _run(wrapper: Any, text: str, parameters: Parameters) -> LibraryResult:
    with wrapper.cursor() as cursor:
        cursor.execute(text, parameters or None)
        return LibraryResult(cursor.fetchall() if cursor.description else [], cursor.rowcount)


def _run_on_sqlite(wrapper: Any, text: str, parameters: Parameters) -> LibraryResult:
    """Django formats the text of a statement with parameters.

    Doubled percent signs become single. Positions (`?1`) get names, because Django's log would
    count them otherwise.
    """
    if not parameters:
        return _run(wrapper, text, parameters)
    said = text.replace("%", "%%")
    if isinstance(parameters, tuple):
        said = _PLACE.sub(r"%(place_\1)s", said)
        parameters = {f"place_{place}": value for place, value in enumerate(parameters, start=1)}
    return _run(wrapper, said, parameters)
