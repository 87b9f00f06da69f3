"""Steps over HTTP: `run.step` for a handler that runs elsewhere.

Begin a step; run it if the response allows it; report how it ended. A rerun of the job receives
the result of the step, and does not run it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec

from onefold.effects import step_store
from onefold.effects.step_store import RemoteStep
from onefold.errors import ConflictingOptions, InvalidInput, JobNotFound
from onefold.model import checks
from onefold.model.claim import Holding
from onefold.model.step import Step, StepReply
from onefold.model.wire import Answer, Body, Fence
from onefold.server.problems import NOT_FOUND
from onefold.server.request_context import Reply, Route
from onefold.server.routes.deliveries import fence_of
from onefold.server.routes.jobs import job_id_of
from onefold.web.problems import Refused, make

if TYPE_CHECKING:
    from onefold.model.claim import Takeover
    from onefold.server.request_context import RequestContext

Outcome: TypeAlias = Literal["failed", "retrying", "unknown"]
Occurrence: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class StepError(Body):
    """What went wrong."""

    type: str
    message: str = ""


class StepBody(Body):
    """A message of a delivery about one of its steps."""

    action: Literal["begin", "finish", "fail"]
    """`begin` returns whether to run it; `finish` and `fail` report how it ended."""
    fence: Fence | None = None
    """Of the delivery; here, or in the header Onefold-Fence."""
    key: str | None = None
    """Distinguishes this step from others of its name."""
    occurrence: Occurrence = 1
    """Instead of a key: its index among them."""
    attempt: UUID | None = None
    """Chosen by you, new for every begin: a request that is sent again finds its own attempt."""
    fingerprint: str | None = None
    """Digest of the arguments: a rerun with other arguments is rejected."""
    unsafe: bool = False
    """With `begin`: it must not run twice, so a step that vanished or failed is not repeated."""
    verified: bool = False
    """With `begin`: you find out yourself how the last attempt ended, or know it."""
    result: Any = None
    """With `finish`: what a rerun receives."""
    error: StepError | None = None
    """With `fail`: what went wrong."""
    final: bool = False
    """With `fail`: it must not be tried again."""
    unknown: bool | None = None
    """With `fail`: whether it may have happened, and must not be repeated.

    Left out, it is unknown for a step that was begun `unsafe`; `false` means that it was not done.
    """


class StepList(Answer):
    """The steps of a job, in the order in which they began."""

    items: list[Step]


class StepQuery(Body):
    """Which of the steps of this name."""

    key: str | None = None
    occurrence: Occurrence = 1


async def say(asking: RequestContext) -> Reply:
    """Begin a step, or report how it ended."""
    body: StepBody = asking.body
    _refuse_misplaced(body)
    asked = _asked(asking, body)
    context = asking.server.context
    if body.action == "begin":
        takeover: Takeover = "refuse" if body.unsafe else "rerun"
        begun = await context.runtime.arun(
            step_store.begin(asked, takeover=takeover, verified=body.verified)
        )
        return _finished(begun) if begun.is_over else _begun(begun)
    if body.action == "finish":
        return _finished(await context.runtime.arun(step_store.finish(asked, body.result)))
    assert body.error is not None
    error = msgspec.structs.asdict(body.error)
    stored = await context.runtime.arun(
        step_store.fail(asked, error, final=body.final, unknown=body.unknown)
    )
    label = _label(body, asked.name)
    return Reply(200, StepReply(outcome=_FAILED[stored], name=asked.name, label=label, result=None))


def _asked(asking: RequestContext, body: StepBody) -> RemoteStep:
    fence = fence_of(asking, body.fence)
    if fence is None:
        raise InvalidInput("fence", "is missing: send the fence of the delivery")
    if body.fingerprint is not None:
        checks.key(body.fingerprint, "fingerprint")
    return RemoteStep(
        tenant=asking.tenant,
        job_id=job_id_of(asking),
        fence=fence,
        name=asking.path["name"],
        key=body.key,
        occurrence=body.occurrence,
        attempt=None if body.attempt is None else str(body.attempt),
        fingerprint=body.fingerprint,
    )


_FAILED: Final[dict[Holding, Outcome]] = {
    Holding.SETTLED: "failed",
    Holding.HELD: "unknown",
    Holding.FREE: "retrying",
}

_ONLY: Final = {
    "unsafe": "begin",
    "verified": "begin",
    "result": "finish",
    "error": "fail",
    "final": "fail",
    "unknown": "fail",
}


def _refuse_misplaced(body: StepBody) -> None:
    for field, action in _ONLY.items():
        given = getattr(body, field)
        if body.action != action and given is not None and given is not False:
            raise ConflictingOptions(field, f"is for {action!r} alone")
    if body.action == "fail" and body.error is None:
        raise InvalidInput("error", "is missing: send the error of the step")
    if body.final and body.unknown:
        raise ConflictingOptions("final", "and unknown exclude each other")
    if body.key is not None and body.occurrence != 1:
        raise ConflictingOptions("occurrence", "is for steps without a key")


def _label(body: StepBody, name: str) -> str:
    if body.key is not None:
        return f"{name}[{body.key}]"
    return name if body.occurrence == 1 else f"{name}#{body.occurrence}"


def _begun(begun: step_store.StepStart) -> Reply:
    told = StepReply(
        outcome="run",
        name=begun.name.name,
        label=begun.name.label,
        attempt=begun.row.owner,
        attempts=begun.row.notes.attempts,
        idempotency_key=begun.third_party_key,
    )
    return Reply(201, told)


def _finished(begun: step_store.StepStart) -> Reply:
    name = begun.name
    told = StepReply(outcome="finished", name=name.name, label=name.label, result=begun.result)
    return Reply(200, told)


async def list_steps(asking: RequestContext) -> Reply:
    """All steps of a job."""
    return Reply(200, StepList(items=await _steps(asking)))


async def get_step(asking: RequestContext) -> Reply:
    """One step, of the newest generation."""
    query: StepQuery = asking.query
    place = (asking.path["name"], query.key, query.occurrence)
    found = [
        step for step in await _steps(asking) if (step.name, step.key, step.occurrence) == place
    ]
    if not found:
        raise Refused(
            make(NOT_FOUND, f"The job has no step {place[0]!r} that has begun, or is over.")
        )
    return Reply(200, max(found, key=lambda step: step.generation))


async def _steps(asking: RequestContext) -> list[Step]:
    job_id = job_id_of(asking)
    found = await asking.calls.deliveries.asteps(job_id)
    if not found and await asking.calls.aget(job_id) is None:
        raise JobNotFound(job_id)
    return found


ROUTES: Final = (
    Route(
        method="PUT",
        path="/v1/jobs/{id}/steps/{name}",
        name="putStep",
        summary="Begin a step of a delivery, or say how it ended",
        description=(
            "`begin` is answered with 201 `run` (do it, then finish it) or 200 `finished` with the"
            " stored result. 409 `busy`: another try of this delivery is at it. 409"
            " `outcome_unknown`: one that must not be repeated has vanished. 409 `step_failed`: it"
            " failed for good. 409 `lease_lost`: the job is no longer this delivery's. 422"
            " `key_reused`: it was begun with other arguments. A `finish` without a begin stores a"
            " value at once."
        ),
        scope="work",
        endpoint=say,
        body=StepBody,
        answers={201: StepReply, 200: StepReply},
        problems=(404, 409, 422),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/steps",
        name="listSteps",
        summary="The steps of a job",
        description="Every step of its deliveries, with its state and its stored result.",
        scope="work",
        endpoint=list_steps,
        answers={200: StepList},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/steps/{name}",
        name="getStep",
        summary="One step of a job",
        description=(
            "Of the newest generation. `key` and `occurrence` tell steps of one name apart."
        ),
        scope="work",
        endpoint=get_step,
        query=StepQuery,
        answers={200: Step},
        problems=(404,),
    ),
)
