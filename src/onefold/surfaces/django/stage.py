"""Where a request's transaction is begun: on a connection of Django's, by its alias.

Where an atomic block is open already (a test's, or one that was put around the view), the claim,
the rows and the answer are part of it, and its end is theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from django.db import connections, transaction

from onefold.databases.borrowed import borrow
from onefold.databases.transactions import HandlerTransaction
from onefold.errors import UsageError
from onefold.surfaces.stage import Stage

if TYPE_CHECKING:
    from onefold.surfaces.http.desk import Desk
    from onefold.surfaces.http.policy import Policy


class Alias(msgspec.Struct, frozen=True):
    """A database of Django's, for `transaction=`."""

    name: str

    def __call__(self) -> Any:
        """This thread's connection to it."""
        return connections[self.name]


def alias_of(target: object) -> object:
    """A target that was given as an alias or as a connection of Django's, as an alias of it."""
    name = target if isinstance(target, str) else getattr(target, "alias", None)
    return Alias(name) if isinstance(name, str) else target


def stage_for(desk: Desk, policy: Policy, own: str | None) -> Stage:
    """Where a request of this policy is carried out; `own` is the alias of Onefold's database."""
    target = desk.target(policy)
    if not isinstance(target, Alias):
        if own is not None and connections[own].in_atomic_block:
            raise UsageError(
                "A leased view commits its claim before its work, and an atomic block is open"
                " around it, which would commit the work afterwards. Take the block away; in tests,"
                " use TransactionTestCase."
            )
        return Stage(desk.conductor, target)
    connection = connections[target.name]
    if connection.in_atomic_block:
        return _InBlock(desk, connection)
    return Stage(desk.conductor, target)


class _InBlock(Stage):
    """In the block that is open: also what would otherwise be committed by itself."""

    def __init__(self, desk: Desk, connection: Any) -> None:
        conductor = desk.conductor
        self._lent = borrow(connection, conductor.database)
        self._django = connection
        super().__init__(conductor.lent(self._lent), connection)

    def _open(self) -> None:
        block = transaction.atomic(using=self._django.alias)
        block.__enter__()
        self._begun = HandlerTransaction(self._django, self._lent, self._conductor.database, block)
