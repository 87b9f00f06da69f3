"""All commands, `onefold version`, and the options before a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from onefold import __version__
from onefold.cli.apikeys import apikeys
from onefold.cli.backup import backup
from onefold.cli.chaos import chaos
from onefold.cli.config import KEYS, read_configuration
from onefold.cli.dead import dead
from onefold.cli.demo.command import demo
from onefold.cli.doctor import doctor
from onefold.cli.enqueue import enqueue
from onefold.cli.jobs import jobs
from onefold.cli.keys import keys
from onefold.cli.migrate import migrate
from onefold.cli.parsers import examples
from onefold.cli.queues import queues
from onefold.cli.schedules import schedules
from onefold.cli.serve import serve
from onefold.cli.status import status
from onefold.cli.top import top
from onefold.cli.why import why
from onefold.cli.worker import worker
from onefold.cli.workers import workers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def version() -> None:
    """Print the version."""
    typer.echo(f"onefold {__version__}")


def print_version(wanted: bool) -> None:  # noqa: FBT001 - called by typer
    """The option `--version`: print the version and exit."""
    if wanted:
        version()
        raise typer.Exit


app: typer.Typer = typer.Typer(
    name="onefold",
    help="Onefold: exactly-once jobs and idempotency keys.",
    no_args_is_help=True,
    # Help is plain text: the reference in the docs is compared with it.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
COMMANDS: Final[Mapping[Callable[..., None], tuple[str, ...]]] = {
    backup: ("onefold backup /backups/onefold.db", "onefold backup latest.db --force --json"),
    chaos: (
        "onefold chaos shop:onefold --seconds 30 --check 'select sum(paid) from orders' --yes",
    ),
    demo: ("onefold demo",),
    doctor: ("onefold doctor", "onefold doctor --database postgresql://app@db/shop --json"),
    enqueue: (
        """onefold enqueue email '{"to": 42}' --unique-key welcome:42""",
        "onefold enqueue digest --queue mail --delay 10m",
        "onefold enqueue import - --idempotency-key 2026-03-29 < import.json",
    ),
    migrate: (
        "onefold migrate --database postgresql://app@db/shop",
        "onefold migrate --sql > schema.sql",
    ),
    serve: ("onefold serve --database postgresql://app@db/shop --port 7890",),
    status: ("onefold status", "onefold status --json"),
    top: ("onefold top", "onefold top --every 10s --tenant acme"),
    version: ("onefold version",),
    why: (
        "onefold why 01980000-0000-7000-8000-000000000000",
        "onefold why welcome:42",
        "onefold why order-7 --surface http --scope alice",
    ),
    worker: (
        "onefold worker shop:onefold --concurrency 50",
        "onefold worker shop:onefold --queues mail:5,default --processes 4",
    ),
    workers: ("onefold workers", "onefold workers --json"),
}
"""The commands that belong to no group, with examples for their help."""

for _command, _lines in COMMANDS.items():
    app.command(epilog=examples(*_lines))(_command)
app.add_typer(apikeys, name="apikeys")
app.add_typer(dead, name="dead")
app.add_typer(jobs, name="jobs")
app.add_typer(keys, name="keys")
app.add_typer(queues, name="queues")
app.add_typer(schedules, name="schedules")


@app.callback()
def before(
    context: typer.Context,
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options without a command."""
    del version
    command = context.invoked_subcommand
    if command is not None and command in KEYS:
        configuration = read_configuration(Path.cwd(), command)
        context.obj = configuration
        context.default_map = {command: dict(configuration.settings)}
