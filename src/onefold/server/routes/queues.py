"""Queues over HTTP: create, get, list, pause and delete them, change their secrets.

Also here: the JSON of a queue, and its conversion to the settings of the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from onefold.app.queues import OVERLAP
from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.model.lifecycle import Retention
from onefold.model.queue import (
    ACK_TIMEOUTS,
    TIMEOUTS,
    AckTimeoutAction,
    HeldWhy,
    Mode,
    QueueConfiguration,
    QueueCounts,
    SigningSecret,
    checked,
)
from onefold.model.retry import DEFAULT_BACKOFF, Backoff
from onefold.model.timestamps import Duration, Iso, as_duration
from onefold.model.wire import (
    Answer,
    Attempts,
    Body,
    Query,
    iso,
    iso_or_none,
)
from onefold.push.address import AddressPolicy, endpoint
from onefold.server.problems import UnknownQueue
from onefold.server.request_context import Reply, Route

if TYPE_CHECKING:
    from onefold.model.queue import ServedQueue
    from onefold.server.request_context import RequestContext


DEFAULTS: Final = QueueConfiguration()
_MEMBERS: Final = {"rate": "rate_limit", "secrets": "signing_secret"}

PushSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=TIMEOUTS[0], le=TIMEOUTS[1])]
AckSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=ACK_TIMEOUTS[0], le=ACK_TIMEOUTS[1])]


class QueueBody(Body):
    """A whole queue: a member that is left out has its default, not its earlier value."""

    endpoint: str | None = None
    """The URL that jobs are POSTed to; without one, workers pull from the queue."""
    mode: Mode = DEFAULTS.mode
    """`standard`: a 2xx ends the job. `ack`: after a 2xx the job waits for an ack."""
    max_attempts: Attempts = DEFAULTS.max_attempts
    backoff: Backoff | None = None
    rate_limit: str | None = None
    """How many jobs start per period: `100/m`, `10/30s`."""
    concurrency: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """How many jobs run at once, on all machines together."""
    timeout: PushSeconds = DEFAULTS.timeout
    """How long one push may take."""
    ack_timeout: AckSeconds = DEFAULTS.ack_timeout
    """How long a job waits for its ack; then it is retried, or dead."""
    ack_timeout_action: AckTimeoutAction = DEFAULTS.ack_timeout_action
    retention: Retention | None = None
    signing_secret: str | None = None
    """`whsec_` and base64. Left out, it stays, or is created if there is none."""
    headers: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Sent with every push."""
    paused: bool | None = None
    """Left out, it stays as it is."""


class QueueAnswer(Answer):
    """A queue in its current state."""

    name: str
    endpoint: str | None
    mode: Mode
    max_attempts: int
    backoff: Backoff
    rate_limit: str | None
    concurrency: int | None
    timeout: float
    ack_timeout: float
    ack_timeout_action: AckTimeoutAction
    retention: Retention
    header_names: list[str]
    """The names of the headers; their values are only shown with the secret."""
    paused: bool
    paused_reason: str | None
    held_until: Iso | None
    """Until when the endpoint receives nothing. Then one job tries it, and opens the queue."""
    held_why: HeldWhy | None
    failures: int
    """Failures of the endpoint in a row."""
    counts: QueueCounts | None
    """Null unless requested."""
    created_at: Iso
    updated_at: Iso


class QueueWithSecrets(QueueAnswer):
    """A queue with its secret values, for callers that may change it."""

    signing_secret: str | None
    headers: dict[str, str]


class SecretAnswer(Answer):
    """A secret that signs pushes."""

    secret: str
    expires_at: Iso | None
    """When it stops to sign."""


class SecretsAnswer(Answer):
    """The secrets that sign now, the newest first: a receiver may verify with any of them."""

    signing_secret: str | None
    """The newest."""
    secrets: list[SecretAnswer]


class QueueList(Answer):
    """A page of queues, by name."""

    items: list[QueueAnswer]
    next: str | None
    """Give it as `after` for the next page; null on the last."""


def configuration_of(body: QueueBody, policy: AddressPolicy) -> QueueConfiguration:
    """The configuration of a body, checked without the database."""
    configuration = QueueConfiguration(
        endpoint=_endpoint(body.endpoint, policy),
        mode=body.mode,
        max_attempts=body.max_attempts,
        backoff=body.backoff,
        timeout=body.timeout,
        ack_timeout=body.ack_timeout,
        ack_timeout_action=body.ack_timeout_action,
        concurrency=body.concurrency,
        rate=body.rate_limit,
        retention=body.retention,
        secrets=() if body.signing_secret is None else (SigningSecret(body.signing_secret),),
        headers=body.headers,
    )
    return checked_by_member(configuration)


def checked_by_member(configuration: QueueConfiguration) -> QueueConfiguration:
    """The same; an error has the name that the setting has in JSON."""
    try:
        return checked(configuration)
    except InvalidInput as error:
        if error.field not in _MEMBERS:
            raise
        raise type(error)(_MEMBERS[error.field], error.reason) from error


def _endpoint(url: str | None, policy: AddressPolicy) -> str | None:
    if url is None:
        return None
    read = endpoint(url)
    policy.check(read)
    return read.url


def said_of(queue: ServedQueue) -> QueueAnswer:
    """The JSON of a queue."""
    return QueueAnswer(**_members(queue))


def said_with_secrets(queue: ServedQueue) -> QueueWithSecrets:
    """The JSON of a queue, for callers that may change it."""
    configuration = queue.configuration
    return QueueWithSecrets(
        **_members(queue),
        signing_secret=newest_secret(configuration),
        headers=dict(configuration.headers),
    )


def secrets_said(configuration: QueueConfiguration) -> SecretsAnswer:
    """The JSON of the secrets."""
    return SecretsAnswer(
        signing_secret=newest_secret(configuration),
        secrets=[
            SecretAnswer(secret=text, expires_at=iso_or_none(expires_at))
            for text, expires_at in configuration.secrets
        ],
    )


def newest_secret(configuration: QueueConfiguration) -> str | None:
    """The secret for the receiver."""
    return configuration.secrets[0].text if configuration.secrets else None


def _members(queue: ServedQueue) -> dict[str, Any]:
    said = queue.configuration
    return {
        "name": queue.name,
        "endpoint": said.endpoint,
        "mode": said.mode,
        "max_attempts": said.max_attempts,
        "backoff": said.backoff or DEFAULT_BACKOFF,
        "rate_limit": said.rate,
        "concurrency": said.concurrency,
        "timeout": said.timeout,
        "ack_timeout": said.ack_timeout,
        "ack_timeout_action": said.ack_timeout_action,
        "retention": said.retention or Retention(),
        "header_names": sorted(said.headers),
        "paused": queue.paused,
        "paused_reason": said.paused_reason if queue.paused else None,
        "held_until": iso_or_none(queue.held_until),
        "held_why": queue.held_why,
        "failures": queue.failures,
        "counts": queue.counts,
        "created_at": iso(queue.created_at),
        "updated_at": iso(queue.updated_at),
    }


class QueuesQuery(Query):
    """A page of queues."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    after: str | None = None
    """The `next` of the page before."""
    counts: bool = True
    """The numbers of jobs in each queue; slow with millions of jobs."""


class QueueQuery(Query):
    """Options for one queue."""

    counts: bool = True
    """The numbers of jobs in the queue; slow with millions of jobs."""


class DeleteQueueQuery(Query):
    """How to remove a queue."""

    force: bool = False
    """Also remove the jobs in the queue."""


class SecretBody(Body):
    """A new secret."""

    signing_secret: str | None = None
    """`whsec_` and base64; left out, one is created."""
    overlap: Duration = msgspec.field(default_factory=lambda: as_duration(OVERLAP))
    """For how many seconds the old secret also signs; by default a day."""


async def put_queue(asking: RequestContext) -> Reply:
    """Create a queue, or replace its configuration."""
    name, body = _name(asking), asking.body
    policy = AddressPolicy(asking.server.settings.push_allow)
    configuration = configuration_of(body, policy)
    try:
        saved = await asking.calls.queues.asave(name, configuration, paused=body.paused)
    finally:
        # Also after an error: the new settings may be stored.
        asking.server.changed(asking.tenant, name)
    return Reply(201 if saved.is_new else 200, said_with_secrets(saved))


async def get_queue(asking: RequestContext) -> Reply:
    """One queue."""
    query: QueueQuery = asking.query
    return Reply(200, said_of(await _found(asking, counts=query.counts)))


async def list_queues(asking: RequestContext) -> Reply:
    """A page of queues, by name."""
    query: QueuesQuery = asking.query
    # One more than the page shows whether there are more.
    found = await asking.calls.queues.afind_saved(
        after=query.after, limit=query.limit + 1, counts=query.counts
    )
    page = found[: query.limit]
    following = page[-1].name if len(found) > query.limit else None
    return Reply(200, QueueList(items=[said_of(queue) for queue in page], next=following))


async def delete_queue(asking: RequestContext) -> Reply:
    """Remove a queue, unless it has jobs."""
    name = _name(asking)
    query: DeleteQueueQuery = asking.query
    if not await asking.calls.queues.adelete(name, force=query.force):
        raise UnknownQueue(name)
    asking.server.changed(asking.tenant, name)
    return Reply(204)


async def pause_queue(asking: RequestContext) -> Reply:
    """Pause a queue: it gives no more jobs."""
    name = _name(asking)
    await _found(asking)
    return _known(asking, name, await asking.calls.queues.apause(name))


async def resume_queue(asking: RequestContext) -> Reply:
    """Resume a queue."""
    name = _name(asking)
    await _found(asking)
    return _known(asking, name, await asking.calls.queues.aresume(name))


async def get_secret(asking: RequestContext) -> Reply:
    """The secrets that sign now."""
    return Reply(200, secrets_said((await _found(asking)).configuration))


async def rotate_secret(asking: RequestContext) -> Reply:
    """Sign with a new secret; the old one also signs for a while."""
    name, body = _name(asking), asking.body
    if body.signing_secret is not None:
        checked_by_member(QueueConfiguration(secrets=(SigningSecret(body.signing_secret),)))
    try:
        queue = await asking.calls.queues.arotate_secret(
            name, secret=body.signing_secret, overlap=body.overlap
        )
    finally:
        asking.server.changed(asking.tenant, name)
    if queue is None:
        raise UnknownQueue(name)
    return Reply(200, secrets_said(queue.configuration))


def _known(asking: RequestContext, name: str, queue: ServedQueue | None) -> Reply:
    if queue is None:
        raise UnknownQueue(name)
    asking.server.changed(asking.tenant, name)
    return Reply(200, said_of(queue))


async def _found(asking: RequestContext, *, counts: bool = False) -> ServedQueue:
    name = _name(asking)
    queue = await asking.calls.queues.aget(name, counts=counts)
    if queue is None:
        raise UnknownQueue(name)
    return queue


def _name(asking: RequestContext) -> str:
    return checks.name(asking.path["name"], "name")


_PATH: Final = "/v1/queues/{name}"

ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/queues",
        name="listQueues",
        summary="All queues, by name",
        description=(
            "A page at a time. `counts=false` leaves the numbers of jobs out, which is faster."
        ),
        endpoint=list_queues,
        scope="work",
        query=QueuesQuery,
        answers={200: QueueList},
    ),
    Route(
        method="PUT",
        path=_PATH,
        name="putQueue",
        summary="Make a queue, or say anew what holds for it",
        description="The whole queue: what is left out is the default. Its secret, and whether it"
        " is paused, stay as they are unless given. `{}` makes a queue that is pulled from.",
        endpoint=put_queue,
        scope="admin",
        body=QueueBody,
        body_optional=True,
        answers={200: QueueWithSecrets, 201: QueueWithSecrets},
    ),
    Route(
        method="GET",
        path=_PATH,
        name="getQueue",
        summary="One queue, and what is in it",
        description=(
            "Its configuration, whether it is paused or held, and how many jobs it has in each"
            " state."
        ),
        endpoint=get_queue,
        scope="work",
        query=QueueQuery,
        answers={200: QueueAnswer},
        problems=(404,),
    ),
    Route(
        method="DELETE",
        path=_PATH,
        name="deleteQueue",
        summary="Remove a queue",
        description="Refused while jobs are queued or running, unless forced.",
        endpoint=delete_queue,
        scope="admin",
        query=DeleteQueueQuery,
        answers={204: None},
        problems=(404, 409),
    ),
    Route(
        method="POST",
        path=f"{_PATH}/pause",
        name="pauseQueue",
        summary="Give no more jobs of a queue to anybody; what is running goes on",
        description="Safe to repeat. Jobs can still be published to it.",
        endpoint=pause_queue,
        scope="admin",
        answers={200: QueueAnswer},
        problems=(404,),
    ),
    Route(
        method="POST",
        path=f"{_PATH}/resume",
        name="resumeQueue",
        summary="Let a paused queue go on",
        description="Safe to repeat. A hold of the queue stays until it is over.",
        endpoint=resume_queue,
        scope="admin",
        answers={200: QueueAnswer},
        problems=(404,),
    ),
    Route(
        method="GET",
        path=f"{_PATH}/secret",
        name="getSecret",
        summary="What signs the pushes of a queue",
        description="Every secret that signs now, the newest first, and when each of them ends.",
        endpoint=get_secret,
        scope="admin",
        answers={200: SecretsAnswer},
        problems=(404,),
    ),
    Route(
        method="POST",
        path=f"{_PATH}/secret",
        name="rotateSecret",
        summary="Sign with a new secret; the old one signs along for a while",
        description=(
            "Until `overlap` is over, every push is signed with both secrets, and"
            " x-simpleq-signature with the old one."
        ),
        endpoint=rotate_secret,
        scope="admin",
        body=SecretBody,
        body_optional=True,
        answers={200: SecretsAnswer},
        problems=(404,),
    ),
)
