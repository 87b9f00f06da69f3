"""`onefold apikeys`: who may ask the server for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from onefold.cli.command_context import CliContext, ListsByDefault, at_desk, at_new_desk
from onefold.cli.parsers import duration
from onefold.cli.render import when
from onefold.model.api_key import key_scopes

if TYPE_CHECKING:
    from onefold import ApiKey

apikeys: typer.Typer = typer.Typer(
    cls=ListsByDefault,
    help="API keys of the server: make, list and revoke them.",
    rich_markup_mode=None,
)

COLUMNS = ("id", "tenant", "name", "scopes", "rate", "created", "expires", "revoked")


@apikeys.command()
@at_new_desk
def create(
    desk: CliContext,
    *,
    scope: Annotated[
        list[str],
        typer.Option(
            metavar="SCOPE",
            help="publish, work or admin; may be said again. publish may publish and look, work may"
            " do what a worker does, admin anything.",
        ),
    ],
    name: Annotated[str, typer.Option(metavar="TEXT", help="What people call it.")] = "",
    rate: Annotated[
        str | None, typer.Option(metavar="N/UNIT", help="Requests in a time: 100/s, 1000/m.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it counts: 90d.  [for ever]")
    ] = None,
) -> None:
    """Make a key for a tenant, and print it: it is shown this once, and stored nowhere."""
    new = desk.onefold.api_keys.create(
        desk.tenant,
        scopes=key_scopes(scope),
        name=name,
        rate=rate,
        expires_in=None if expires is None else duration(expires, "expires"),
    )
    desk.answer({**_value(new.key), "key": new.text}, new.text)
    if not desk.as_json:
        # On standard error: what is piped on is the key alone.
        whose = f"of the tenant {new.key.tenant}" if new.key.tenant else "of nobody in particular"
        typer.echo(
            f"Made the key {new.key.id} {whose}. Keep it safe: it is not shown again.", err=True
        )


@apikeys.command("list")
@at_desk
def list_keys(desk: CliContext) -> None:
    """List the keys of one tenant, or of all, without secrets. The same as `onefold apikeys`."""
    found = desk.onefold.api_keys.find(desk.tenant or None)
    desk.answer_table(
        [_value(key) for key in found],
        COLUMNS,
        [_row(key) for key in found],
        none="There are no API keys.",
    )


@apikeys.command()
@at_desk
def revoke(
    desk: CliContext,
    key: Annotated[str, typer.Argument(metavar="ID", help="Its id, or the whole key.")],
) -> None:
    """End a key at once and for good."""
    revoked = desk.onefold.api_keys.revoke(key)
    desk.answer(
        {"revoked": revoked},
        "It is revoked: the next request with it is refused."
        if revoked
        else "There is no such key, or it was revoked before.",
    )


def _value(key: ApiKey) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.structs.asdict(key)
    value["rate"] = None if key.rate is None else str(key.rate)
    return value


def _row(key: ApiKey) -> tuple[object, ...]:
    moments = (key.created_at, key.expires_at, key.revoked_at)
    return (key.id, key.tenant, key.name, " ".join(key.scopes), key.rate, *map(when, moments))
