"""The bell: workers that wait for jobs are woken at the commit of what they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onefold.operations.statement import Operation, Sql


def ring(sql: Sql, queues: Iterable[str]) -> Operation[None]:
    """Wake the workers of these queues; SQLite's look for themselves."""
    if rung := sql.rings(queues).get("rings"):
        yield sql("ring", ("queue",), [(queue,) for queue in rung])
