"""Steps of a job that runs here and lives on a server: begin, finish, fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from onefold.client import wire
from onefold.client.flow import place, put
from onefold.effects.step_codec import encoded
from onefold.errors import InvalidInput, OnefoldError
from onefold.model.checks import REASON_BYTES
from onefold.model.failure import printable
from onefold.model.ids import parse_id
from onefold.model.json_text import decode_payload

if TYPE_CHECKING:
    from onefold.client.flow import Ask, Flow


class StepPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Which step, of which delivery, and which try of it."""

    job_id: str
    fence: int
    name: str
    key: str | None = None
    occurrence: int = 1
    fingerprint: str | None = None
    attempt: str = msgspec.field(default_factory=lambda: str(uuid4()))
    """Made once: a begin whose answer was lost finds its own."""

    def body(self, action: str, **more: Any) -> dict[str, Any]:
        """What is said of it."""
        members = {
            "action": action,
            "fence": self.fence,
            "key": self.key,
            "occurrence": self.occurrence if self.key is None else None,
            "attempt": self.attempt,
            "fingerprint": self.fingerprint,
        }
        return wire.said({**members, **more})

    @property
    def path(self) -> str:
        """Where it is."""
        return place("jobs", parse_id(self.job_id), "steps", self.name)


class Begun(wire.Said, frozen=True, kw_only=True):
    """Do it, or take what it gave."""

    outcome: str
    result: Any = None
    idempotency_key: str | None = None

    @property
    def is_over(self) -> bool:
        """True where there is nothing to do."""
        return self.outcome == "finished"


def begin(ask: Ask, step: StepPlace, *, unsafe: bool, verified: bool = False) -> Flow[Begun]:
    """Ask whether to do it. `verified` takes one over whose outcome is unknown."""
    body = step.body("begin", unsafe=unsafe or None, verified=verified or None)
    reply = yield from ask(put(step.path, body))
    return wire.read(reply, Begun)


def finish(ask: Ask, step: StepPlace, result: Any, *, unsafe: bool) -> Flow[Any]:
    """It was done; answers with what a rerun would be given."""
    try:
        text = encoded(result)
    except InvalidInput as error:
        error.add_note(f"The step {step.name!r} was done, but its result is not stored.")
        yield from fail(ask, step, error, unknown=unsafe)
        raise
    body = step.body("finish", result=None if text == "null" else msgspec.Raw(text.encode()))
    yield from ask(put(step.path, body))
    return decode_payload(text)


def fail(ask: Ask, step: StepPlace, error: Exception, *, unknown: bool) -> Flow[None]:
    """It failed, and that is what the caller must see, whatever happens here."""
    said = {"type": type(error).__qualname__, "message": printable(str(error), REASON_BYTES)}
    try:
        yield from ask(put(step.path, step.body("fail", error=said, unknown=unknown)))
    except OnefoldError as failure:
        error.add_note(f"The step {step.name!r} could not be given back: {failure}")
