"""`onefold why`: who has a key, since when, and whom it has kept away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onefold import InvalidInput
from onefold.cli.command_context import CliContext, at_desk
from onefold.cli.render import when

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onefold.model.stored_key import KeyHolder

HELD = {
    "queued": "until a worker takes the job",
    "active": "until the job is completed, dead or cancelled",
    "exists": "as long as the job's record is kept",
}
"""How long a job holds its key."""

STATES = {
    "held": "an attempt is at work; its lease ends {until}",
    "settled": "done; remembered {until}",
    "unknown": "its attempt has vanished: somebody has to find out, and settle or release it",
    "abandoned": "its attempt has vanished; the next one takes it over",
}


@at_desk
def why(
    desk: CliContext,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key itself.")],
    *,
    surface: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only of this surface: job, publish, http, once."),
    ] = None,
    scope: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only of this scope: a kind, a principal.")
    ] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Of a request: say whether it is the one held for."),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Of an enqueue: say whether it is the one held for."),
    ] = None,
) -> None:
    """Say why a request with this key was taken for a duplicate: who has the key."""
    more: dict[str, Any] = {} if payload is None else {"payload": _read(payload)}
    found = desk.calls.keys.why(key, surface=surface, scope=scope, fingerprint=fingerprint, **more)
    blocks = ["\n".join(_lines(holder)) for holder in found]
    desk.answer(found, "\n\n".join(blocks) or "Nobody has this key: the next request with it runs.")


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidInput("payload", f"must be JSON, got {text!r}") from None


def _lines(holder: KeyHolder) -> Iterator[str]:
    """A holder, a line for each thing that is known."""
    for name, text in _said(holder):
        yield f"{name:<12}  {text}"
    for note in holder.suppressed.recent:
        request = "" if note.request_id is None else f"  request {note.request_id}"
        yield f"{'':<12}  {when(note.at)}{request}"


def _said(holder: KeyHolder) -> Iterator[tuple[str, str]]:
    yield "surface", holder.surface
    yield "scope", _scope(holder)
    if (job := holder.job) is not None:
        gone = "gone: only the key remembers it"
        yield "job", f"{job.id} ({job.kind}, {job.state})" if job.state else f"{job.id} ({gone})"
    yield "state", _state(holder)
    yield "since", when(holder.since) or ""
    yield "fence", str(holder.fence)
    if holder.fingerprint is not None:
        verdict = {True: " (the same request)", False: " (another request)", None: ""}
        yield "fingerprint", f"{holder.fingerprint}{verdict[holder.matches]}"
    yield "suppressed", _suppressed(holder)


def _scope(holder: KeyHolder) -> str:
    if holder.surface == "job":
        return f"kind {holder.scope}" if holder.scope else "across kinds"
    # A principal and what it asked for are parted by a line feed.
    return holder.scope.replace("\n", ", ")


def _state(holder: KeyHolder) -> str:
    until = f"until {when(holder.until)}"
    if holder.surface == "job":
        rule = holder.unique_while
        return f"{holder.state}; holds its key {until if rule is None else HELD[rule]}"
    if holder.surface == "publish":
        return f"{holder.state}: stands for its job {until}, and not before the job has ended"
    told = "until told" if holder.until is None else until
    if holder.state == "held":
        told = when(holder.until) or "with its transaction"
    return f"{holder.state}: {STATES[holder.state].format(until=told)}"


def _suppressed(holder: KeyHolder) -> str:
    suppressed = holder.suppressed
    if not suppressed.count:
        return "nobody"
    first, last = when(suppressed.first_at), when(suppressed.last_at)
    return f"{suppressed.count}, from {first} to {last}"
