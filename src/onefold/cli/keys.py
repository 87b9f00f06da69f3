"""`onefold keys`: list, show, release, settle and sweep stored keys."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import typer

from onefold.app.keys import KeyFilters  # noqa: TC001 - read by typer
from onefold.cli.command_context import CliContext, ListsByDefault, with_context
from onefold.cli.jobs import AfterOption, PageOption  # noqa: TC001 - read by typer
from onefold.cli.parsers import Expand, examples, expanded, json_value
from onefold.cli.render import field_lines, when
from onefold.model.claim import ClaimKey
from onefold.model.step import read_name
from onefold.model.stored_key import KeyState  # noqa: TC001 - read by typer

if TYPE_CHECKING:
    from onefold import StoredKey

keys: typer.Typer = typer.Typer(
    cls=ListsByDefault,
    help="Keys of requests, webhooks, forms and once(): list, show, release and settle them.",
    rich_markup_mode=None,
)

SurfaceArgument: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="SURFACE", help="http, webhook, form, once, or a surface of your own."),
]
ScopeArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="SCOPE", help="The principal, or the name of a once().")
]
KeyArgument: TypeAlias = Annotated[str, typer.Argument(metavar="KEY", help="The key.")]

StepOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only this step of the last attempt.")
]

COLUMNS = ("surface", "scope", "key", "state", "since", "lease until", "expires")


def read_filters(
    *,
    surface: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this surface: http, webhook, form, once.")
    ] = None,
    scope: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Of this scope, such as a principal.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="With this key.")] = None,
    state: Annotated[
        KeyState | None, typer.Option(metavar="STATE", help="In this state, such as unknown.")
    ] = None,
) -> KeyFilters:
    """The filters that the options describe."""
    return {"surface": surface, "scope": scope, "key": key, "state": state}


filtered: Expand = expanded("filters", read_filters)
"""Adds the options that filter keys."""


@keys.command("list", epilog=examples("onefold keys --surface http --state unknown"))
@with_context
@filtered
def list_keys(
    cli: CliContext,
    filters: KeyFilters,
    *,
    limit: PageOption = 50,
    after: AfterOption = None,
) -> None:
    """List keys with their state, without results. `onefold keys` does the same."""
    page = cli.calls.keys.find(limit=limit, after=after, **filters)
    cli.answer_table(
        {"keys": [_value(key) for key in page], "next": page.next},
        COLUMNS,
        [_row(key) for key in page],
        none="No keys found.",
    )
    if page.next is not None and not cli.as_json:
        typer.echo(f"There are more: --after {shlex.quote(page.next)}")


@keys.command(epilog=examples("onefold keys show once import 2026-03-29"))
@with_context
def show(cli: CliContext, surface: SurfaceArgument, scope: ScopeArgument, key: KeyArgument) -> None:
    """Show a key and its stored result, which may be personal data."""
    page = cli.calls.keys.find(surface=surface, scope=scope, key=key, results=True)
    if not page.keys:
        return cli.answer(None, "The key does not exist.")
    (found,) = page
    value = {**_value(found), "result": found.result, "steps": _steps(cli, found)}
    return cli.answer(value, "\n".join(field_lines(value)))


@keys.command(epilog=examples("onefold keys release once import 2026-03-29"))
@with_context
def release(
    cli: CliContext,
    surface: SurfaceArgument,
    scope: ScopeArgument,
    key: KeyArgument,
    *,
    step: StepOption = None,
) -> None:
    """Release a key or a step, even if an attempt holds it. The next attempt runs."""
    released = cli.calls.keys.force_release(scope, key, surface=surface, step=step)
    cli.answer(
        {"released": released},
        f"Released {step or key}." if released else _unchanged(step),
    )


@keys.command(
    epilog=examples(
        "onefold keys settle once import 2026-03-29 --result '{\"rows\": 5}'",
        "onefold keys settle http alice order-7 --status 201 --body '{\"id\": 7}'",
    )
)
@with_context
def settle(
    cli: CliContext,
    surface: SurfaceArgument,
    scope: ScopeArgument,
    key: KeyArgument,
    *,
    result: Annotated[
        str | None, typer.Option(metavar="JSON", help="The result for later attempts.  [null]")
    ] = None,
    status: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=200, max=599, help="For http and form: the status of the response."
        ),
    ] = None,
    body: Annotated[
        str, typer.Option(metavar="TEXT", help="For http and form: the body of the response.")
    ] = "",
    content_type: Annotated[
        str, typer.Option(metavar="TYPE", help="For http and form: the type of the body.")
    ] = "application/json",
    step: StepOption = None,
) -> None:
    """Store a result for a key or a step, even if an attempt holds it."""
    from onefold.web.idempotency.stored_response import operator_result

    given = operator_result(
        "" if step else surface,
        None if result is None else json_value(result, "result"),
        status=status,
        body=body,
        media_type=content_type,
    )
    settled = cli.calls.keys.force_settle(scope, key, given, surface=surface, step=step)
    cli.answer(
        {"settled": settled},
        f"Settled {step or key}." if settled else _unchanged(step),
    )


@keys.command(epilog=examples("onefold keys sweep"))
@with_context
def sweep(cli: CliContext) -> None:
    """Delete expired keys of all tenants, as workers do."""
    swept = cli.onefold.deliveries.sweep()
    cli.answer({"swept": swept}, f"Deleted {swept} expired keys.")


def _unchanged(step: str | None) -> str:
    if step is None:
        return "The key does not exist, or it is free."
    return "The step does not exist, or it has ended."


def _steps(cli: CliContext, found: StoredKey) -> dict[str, str]:
    """The steps of the last attempt, by name."""
    place = ClaimKey(found.tenant, *found.place)
    rows = {
        read_name(row.key): row for row in cli.calls.keys.find(surface="step", scope=place.steps)
    }
    # Generations are ids of claims, which grow with time.
    last = max((name.generation for name in rows), default=0)
    return {
        name.label: "over" if row.state == "settled" else "begun"
        for name, row in rows.items()
        if name.generation == last and row.state != "free"
    }


def _value(key: StoredKey) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.structs.asdict(key)
    del value["result"]
    return value


def _row(key: StoredKey) -> tuple[object, ...]:
    moments = (key.since, key.lease_until, key.expires_at)
    return (key.surface, key.scope, key.key, key.state, *map(when, moments))
