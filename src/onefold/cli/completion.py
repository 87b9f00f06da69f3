"""Names that a shell completes: queues, schedules and kinds of the database of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from onefold.cli.command_context import chosen, refuse_absent
from onefold.errors import OnefoldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onefold import Onefold


def _completed(find: Callable[[Onefold], Iterable[str]]) -> Callable[..., list[str]]:
    def complete(context: typer.Context, incomplete: str) -> list[str]:
        """The names that begin with the text; none if the database cannot be read."""
        database, app = context.params.get("database"), context.params.get("app")
        schema = context.params.get("schema", "onefold")
        try:
            with chosen(context, database, schema, app).open() as onefold:
                refuse_absent(onefold)
                return [name for name in find(onefold) if name.startswith(incomplete)]
        except OnefoldError:
            return []

    # Typer reads the annotations.
    complete.__annotations__ = {"context": typer.Context, "incomplete": str}
    return complete


queue_names: Callable[..., list[str]] = _completed(
    lambda onefold: (queue.full_name for queue in onefold.queues.find())
)
schedule_names: Callable[..., list[str]] = _completed(
    lambda onefold: (one.name for one in onefold.schedules.find())
)
kinds: Callable[..., list[str]] = _completed(lambda onefold: onefold.jobs.kinds)
