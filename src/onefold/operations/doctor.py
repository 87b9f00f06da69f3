"""What a database tells about itself, for `onefold doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onefold.operations.statement import Operation, Sql


class Examined(NamedTuple):
    """Facts by name, and the indexes with their validity."""

    facts: Mapping[str, str]
    indexes: Mapping[str, bool]


def examine(sql: Sql) -> Operation[Examined]:
    """Read the facts and the indexes."""
    facts = yield sql("examine")
    indexes = yield sql("find_indexes")
    return Examined(
        {name: str(value) for name, value in facts},
        {name: bool(valid) for name, valid in indexes},
    )
