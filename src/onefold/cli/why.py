"""`onefold why`: why a job waits; the holders of a key, and the duplicates that they suppressed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from onefold.cli.command_context import CliContext, with_context
from onefold.cli.parsers import json_value
from onefold.cli.render import when
from onefold.errors import InvalidInput
from onefold.model.stored_key import HELD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onefold import Job
    from onefold.model.stored_key import KeyHolder

STATES = {
    "held": "an attempt is running; its lease ends {until}",
    "settled": "done; the result is stored {until}",
    "unknown": "the attempt vanished; find out its outcome, then settle or release the key",
    "abandoned": "the attempt vanished; the next attempt takes over",
}


@with_context
def why(
    cli: CliContext,
    key: Annotated[str, typer.Argument(metavar="KEY|ID", help="The key, or the id of a job.")],
    *,
    surface: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this surface: job, publish, http, once."),
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only this scope, such as a kind or a principal."),
    ] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Compare with this fingerprint of a request."),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Compare with this payload of an enqueue."),
    ] = None,
) -> None:
    """Show why a job waits, or why requests with a key are duplicates.

    The id of a job is answered with what the job waits for. For a key, the answer has its holders.
    """
    only_keys = any(option is not None for option in (surface, scope, fingerprint, payload))
    if not only_keys and (job := _job(cli, key)) is not None:
        return _show_waiting(cli, job)
    more: dict[str, Any] = {} if payload is None else {"payload": json_value(payload, "payload")}
    found = cli.calls.keys.why(key, surface=surface, scope=scope, fingerprint=fingerprint, **more)
    blocks = ["\n".join(_lines(holder)) for holder in found]
    return cli.answer(
        found, "\n\n".join(blocks) or "The key has no holder: the next request with it runs."
    )


def _job(cli: CliContext, text: str) -> Job | None:
    try:
        return cli.calls.get(text)
    except InvalidInput:  # not an id
        return None


def _show_waiting(cli: CliContext, job: Job) -> None:
    waiting = cli.calls.deliveries.why(job.id)
    value = {"id": job.id, "kind": job.kind, "state": job.state, "waiting": waiting}
    text = f"It does not wait: it is {job.state}." if waiting is None else waiting.text
    cli.answer(value, f"{job.id} ({job.kind}, {job.state})\n{text}")


def _lines(holder: KeyHolder) -> Iterator[str]:
    """A holder as text, one line per field."""
    for name, text in _fields(holder):
        yield f"{name:<12}  {text}"
    for note in holder.suppressed.recent:
        request = "" if note.request_id is None else f"  request {note.request_id}"
        yield f"{'':<12}  {when(note.at)}{request}"


def _fields(holder: KeyHolder) -> Iterator[tuple[str, str]]:
    yield "surface", holder.surface
    yield "scope", _scope(holder)
    if (job := holder.job) is not None:
        gone = "deleted; only the key remains"
        yield "job", f"{job.id} ({job.kind}, {job.state})" if job.state else f"{job.id} ({gone})"
    yield "state", _state(holder)
    yield "since", when(holder.since) or ""
    yield "fence", str(holder.fence)
    if holder.fingerprint is not None:
        match = {True: " (the same request)", False: " (another request)", None: ""}
        yield "fingerprint", f"{holder.fingerprint}{match[holder.matches]}"
    yield "suppressed", _suppressed(holder)


def _scope(holder: KeyHolder) -> str:
    if holder.surface == "job":
        return f"kind {holder.scope}" if holder.scope else "across kinds"
    # A line feed separates the principal and the route.
    return holder.scope.replace("\n", ", ")


def _state(holder: KeyHolder) -> str:
    until = f"until {when(holder.until)}"
    if holder.surface == "job":
        rule = holder.unique_while
        return f"{holder.state}; holds its key {until if rule is None else HELD[rule]}"
    if holder.surface == "publish":
        return f"{holder.state}: holds the key {until}, and at least until the job has ended"
    end = "without an end" if holder.until is None else until
    if holder.state == "held":
        end = when(holder.until) or "with its transaction"
    return f"{holder.state}: {STATES[holder.state].format(until=end)}"


def _suppressed(holder: KeyHolder) -> str:
    suppressed = holder.suppressed
    if not suppressed.count:
        return "none"
    first, last = when(suppressed.first_at), when(suppressed.last_at)
    return f"{suppressed.count}, from {first} to {last}"
