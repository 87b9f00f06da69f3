"""Steps over HTTP: `run.step` for a handler that runs elsewhere.

Begin a step; run it if the response allows it; report how it ended. A rerun of the job receives
the result of the step, and does not run it again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec

from onefold.effects import delivered_steps
from onefold.effects.delivered_steps import DeliveredStep, RemoteStep
from onefold.errors import ConflictingOptions, InvalidInput, JobNotFound
from onefold.model import checks
from onefold.model.claim import Holding
from onefold.model.json_text import decode_payload
from onefold.model.step import Step, StepPage, StepReply, StepRow
from onefold.model.wire import Body, Fence
from onefold.operations import steps
from onefold.server.problems import BUSY, JOB_NOT_FOUND, NOT_FOUND, STEP_FAILED, refused
from onefold.server.request_context import Reply, RequestContext
from onefold.server.routing import RouteTable, job_id_of
from onefold.web.problems import KEY_REUSED, LEASE_LOST, OUTCOME_UNKNOWN

if TYPE_CHECKING:
    from onefold.model.claim import Takeover

ROUTES: Final = RouteTable("steps")

Outcome: TypeAlias = Literal["failed", "retrying", "unknown"]
Occurrence: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class StepError(Body):
    """What went wrong."""

    type: str
    """The type of the error, to find it by."""
    message: str = ""
    """What went wrong, for people."""


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


class StepsQuery(Body):
    """A page of steps."""

    after: str | None = None
    """The `next` of the page before."""
    """The steps, in the order in which they began."""


class StepQuery(Body):
    """Which of the steps of this name."""

    key: str | None = None
    """The key of the step, if it has one."""
    occurrence: Occurrence = 1
    """Instead of a key: its index among the steps of its name, from 1."""


@ROUTES.add(
    "PUT",
    "/v1/jobs/{id}/steps/{name}",
    scope="work",
    body=StepBody,
    answers={201: StepReply, 200: StepReply},
    problems=(JOB_NOT_FOUND, BUSY, OUTCOME_UNKNOWN, STEP_FAILED, LEASE_LOST, KEY_REUSED),
)
async def put_step(request: RequestContext) -> Reply:
    """Begin a step of a delivery, or report how it ended.

    `begin` returns 201 `run` (run it, then finish it), or 200 `finished` with the stored result.
    409 `busy`: another try of this delivery runs it. 409 `outcome_unknown`: a try that must not be
    repeated has vanished. 409 `step_failed`: it has failed for good. 409 `lease_lost`: the job has
    another delivery by now. 422 `key_reused`: it was begun with other arguments. A `finish` without
    a begin stores a value at once.
    """
    body: StepBody = request.body
    _check_members(body)
    runtime = request.server.context.runtime
    step = await runtime.arun(delivered_steps.find(_step_of(request, body)))
    if body.action == "begin":
        takeover: Takeover = "refuse" if body.unsafe else "rerun"
        begin = step.begin(takeover=takeover, verified=body.verified)
        row = await runtime.arun(begin)
        return _finished(step, row) if row.is_settled else _begun(step, row)
    if body.action == "finish":
        return _finished(step, await runtime.arun(step.finish(body.result)))
    assert body.error is not None
    error = msgspec.structs.asdict(body.error)
    stored = await runtime.arun(step.fail(error, final=body.final, unknown=body.unknown))
    name = step.name
    reply = StepReply(outcome=_FAILED[stored], name=name.name, label=name.label, result=None)
    return Reply(200, reply)


def _step_of(request: RequestContext, body: StepBody) -> RemoteStep:
    fence = request.fence(body.fence)
    if fence is None:
        raise InvalidInput("fence", "is missing: send the fence of the delivery")
    if body.fingerprint is not None:
        checks.key(body.fingerprint, "fingerprint")
    return RemoteStep(
        tenant=request.tenant,
        job_id=job_id_of(request),
        fence=fence,
        name=request.path["name"],
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


def _check_members(body: StepBody) -> None:
    for field, action in _ONLY.items():
        given = getattr(body, field)
        if body.action != action and given is not None and given is not False:
            raise ConflictingOptions(field, f"is only for {action!r}")
    if body.action == "fail" and body.error is None:
        raise InvalidInput("error", "is missing: send the error of the step")
    if body.final and body.unknown:
        raise ConflictingOptions("final", "and unknown exclude each other")
    if body.key is not None and body.occurrence != 1:
        raise ConflictingOptions("occurrence", "is for steps without a key")


def _begun(step: DeliveredStep, row: StepRow) -> Reply:
    reply = StepReply(
        outcome="run",
        name=step.name.name,
        label=step.name.label,
        attempt=row.owner,
        attempts=row.notes.attempts,
        idempotency_key=step.third_party_key,
    )
    return Reply(201, reply)


def _finished(step: DeliveredStep, row: StepRow) -> Reply:
    result = decode_payload(row.notes.value_text)
    name = step.name
    return Reply(
        200, StepReply(outcome="finished", name=name.name, label=name.label, result=result)
    )


@ROUTES.add(
    "GET",
    "/v1/jobs/{id}/steps",
    scope="work",
    query=StepsQuery,
    answers={200: StepPage},
    problems=(JOB_NOT_FOUND,),
)
async def list_steps(request: RequestContext) -> Reply:
    """List the steps of a job.

    The steps of its deliveries, with their states and stored results. One page per request, of 32
    steps at most; it ends after 4 MiB.
    """
    query: StepsQuery = request.query
    return Reply(200, await _steps(request, query.after))


@ROUTES.add(
    "GET",
    "/v1/jobs/{id}/steps/{name}",
    scope="work",
    query=StepQuery,
    answers={200: Step},
    problems=(JOB_NOT_FOUND, NOT_FOUND),
)
async def get_step(request: RequestContext) -> Reply:
    """One step of a job, of the newest generation.

    `key` and `occurrence` distinguish steps of the same name.
    """
    query: StepQuery = request.query
    place = (request.path["name"], query.key, query.occurrence)
    found: list[Step] = []
    page: StepPage | None = None
    while page is None or page.next is not None:
        page = await _steps(request, None if page is None else page.next)
        found += [one for one in page.items if (one.name, one.key, one.occurrence) == place]
    if not found:
        raise refused(NOT_FOUND, f"The job has no step {place[0]!r} that has begun or ended.")
    return Reply(200, max(found, key=lambda step: step.generation))


async def _steps(request: RequestContext, after: str | None) -> StepPage:
    job_id, context = job_id_of(request), request.calls.context
    look = partial(steps.find_page, job_id=job_id, tenant=context.tenant, after=after)
    page = await context.store.atransact(look, write=False)
    if not page.items and await request.calls.aget(job_id) is None:
        raise JobNotFound(job_id)
    return page
