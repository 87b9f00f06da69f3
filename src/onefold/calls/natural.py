"""`insert_once`: a row that is to be there once, by the unique constraint that its table has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onefold.calls.procedure import Conductor, Procedure, Transaction
from onefold.model.insert_once import Existing, Inserted, natural
from onefold.operations.insert_once import insert_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class NaturalCalls:
    """Natural keys, in the caller's transaction."""

    _conductor: Conductor

    def insert_once(
        self, table: str, values: Mapping[str, Any], *, on: str | Sequence[str]
    ) -> Inserted | Existing:
        """Insert a row, unless one with the same values in the columns `on` is there already.

        `on` names the columns of a unique constraint of the table, whose name may be `schema.name`;
        names are as they are stored, in upper and lower case. A violation of any other constraint
        is the driver's error, as ever.
        """
        return self._conductor.run(_insert_once(table, values, on))

    async def ainsert_once(
        self, table: str, values: Mapping[str, Any], *, on: str | Sequence[str]
    ) -> Inserted | Existing:
        """`insert_once`, awaited."""
        return await self._conductor.arun(_insert_once(table, values, on))


def _insert_once(table: object, values: object, on: object) -> Procedure[Inserted | Existing]:
    wanted = natural(table, values, on)
    answer: Inserted | Existing = yield Transaction(lambda sql: insert_once(sql, wanted))
    return answer
