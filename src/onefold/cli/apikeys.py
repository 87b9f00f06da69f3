"""`onefold apikeys`: create, list and revoke API keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from onefold.cli.command_context import CliContext, ListsByDefault, with_context, with_new_database
from onefold.cli.parsers import duration, examples
from onefold.cli.render import when
from onefold.model.api_key import key_scopes

if TYPE_CHECKING:
    from onefold import ApiKey

apikeys: typer.Typer = typer.Typer(
    cls=ListsByDefault,
    help="API keys of the server: create, list and revoke them.",
    rich_markup_mode=None,
)

COLUMNS = ("id", "tenant", "name", "scopes", "rate", "created", "expires", "revoked")


@apikeys.command(
    epilog=examples("onefold apikeys create --scope publish --name shop --rate 100/s --expires 90d")
)
@with_new_database
def create(
    cli: CliContext,
    *,
    scope: Annotated[
        list[str],
        typer.Option(
            metavar="SCOPE",
            help="read, publish, work or admin; can be repeated. read: read everything, except"
            " secrets. publish: enqueue and read jobs. work: acknowledge jobs, steps, claims and"
            " locks. admin: everything.",
        ),
    ],
    name: Annotated[str, typer.Option(metavar="TEXT", help="A name for lists.")] = "",
    rate: Annotated[
        str | None, typer.Option(metavar="N/UNIT", help="Requests per time: 100/s, 1000/m.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long the key is valid: 90d.  [no end]")
    ] = None,
) -> None:
    """Create an API key and print it. It is not stored, and cannot be shown again."""
    new = cli.onefold.api_keys.create(
        cli.tenant,
        scopes=key_scopes(scope),
        name=name,
        rate=rate,
        expires_in=None if expires is None else duration(expires, "expires"),
    )
    cli.answer({**_value(new.key), "key": new.text}, new.text)
    if not cli.as_json:
        # On standard error, so that a pipe receives only the key.
        owner = f"for the tenant {new.key.tenant}" if new.key.tenant else "without a tenant"
        typer.echo(
            f"Created the key {new.key.id} {owner}. Store it now: it cannot be shown again.",
            err=True,
        )


@apikeys.command("list", epilog=examples("onefold apikeys --tenant acme"))
@with_context
def list_keys(cli: CliContext) -> None:
    """List API keys of one tenant or all, without secrets. `onefold apikeys` does the same."""
    found = cli.onefold.api_keys.find(cli.tenant or None)
    cli.answer_table(
        [_value(key) for key in found],
        COLUMNS,
        [_row(key) for key in found],
        none="There are no API keys. Create one: onefold apikeys create --scope admin",
    )


@apikeys.command(epilog=examples("onefold apikeys revoke 01980000-0000-7000-8000-000000000000"))
@with_context
def revoke(
    cli: CliContext,
    key: Annotated[str, typer.Argument(metavar="ID", help="The id of the key, or the whole key.")],
) -> None:
    """Revoke an API key at once. This cannot be undone."""
    revoked = cli.onefold.api_keys.revoke(key)
    cli.answer(
        {"revoked": revoked},
        "The key is revoked: requests with it are rejected."
        if revoked
        else "The key does not exist, or it is already revoked.",
    )


def _value(key: ApiKey) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.structs.asdict(key)
    value["rate"] = None if key.rate is None else str(key.rate)
    return value


def _row(key: ApiKey) -> tuple[object, ...]:
    moments = (key.created_at, key.expires_at, key.revoked_at)
    return (key.id, key.tenant, key.name, " ".join(key.scopes), key.rate, *map(when, moments))
