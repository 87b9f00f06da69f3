"""Queues over HTTP: make them, look at them, pause them, change their secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from onefold.calls.served_queues import OVERLAP
from onefold.model import names
from onefold.model.served_queue import QueueConfiguration, Secret
from onefold.push.address import AddressPolicy
from onefold.server.api.bounds import Seconds
from onefold.server.api.queue_words import (
    QueueAnswer,
    QueueBody,
    QueueList,
    QueueWithSecrets,
    SecretsAnswer,
    checked_by_member,
    configuration_of,
    said_of,
    said_with_secrets,
    secrets_said,
)
from onefold.server.asking import Said
from onefold.server.problems import QueueNotFound
from onefold.server.route import Route
from onefold.server.seconds import duration
from onefold.server.wire import Body, Query

if TYPE_CHECKING:
    from onefold.model.served_queue import ServedQueue
    from onefold.server.asking import Asking


class QueuesQuery(Query):
    """A page of queues."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    after: str | None = None
    """The `next` of the page before."""
    counts: bool = True
    """How many jobs there are in each: of millions, it takes a while to tell."""


class QueueQuery(Query):
    """How much is told of a queue."""

    counts: bool = True
    """How many jobs there are in it: of millions, it takes a while to tell."""


class DeleteQueueQuery(Query):
    """How a queue is removed."""

    force: bool = False
    """Even with jobs in it: they are removed, too."""


class SecretBody(Body):
    """A new secret."""

    signing_secret: str | None = None
    """`whsec_` and base64; left out, one is made."""
    overlap: Seconds = OVERLAP.total_seconds()
    """For how many seconds the old one signs along, so that no receiver misses a beat."""


async def put_queue(asking: Asking) -> Said:
    """Make a queue, or say anew what holds for it."""
    name, body = _name(asking), asking.body
    policy = AddressPolicy(asking.server.settings.push_allow)
    configuration = configuration_of(body, policy)
    try:
        saved = await asking.calls.asave_served_queue(name, configuration, paused=body.paused)
    finally:
        # Also where the answer was lost: it may be stored.
        asking.server.changed(asking.tenant, name)
    return Said(201 if saved.is_new else 200, said_with_secrets(saved))


async def get_queue(asking: Asking) -> Said:
    """One queue."""
    query: QueueQuery = asking.query
    return Said(200, said_of(await _found(asking, counts=query.counts)))


async def list_queues(asking: Asking) -> Said:
    """A page of queues, by name."""
    query: QueuesQuery = asking.query
    # One more than is shown tells whether there are more.
    found = await asking.calls.aserved_queues(
        after=query.after, limit=query.limit + 1, counts=query.counts
    )
    page = found[: query.limit]
    following = page[-1].name if len(found) > query.limit else None
    return Said(200, QueueList(items=[said_of(queue) for queue in page], next=following))


async def delete_queue(asking: Asking) -> Said:
    """Remove a queue, unless there are jobs in it."""
    name = _name(asking)
    query: DeleteQueueQuery = asking.query
    if not await asking.calls.adelete_served_queue(name, force=query.force):
        raise QueueNotFound(name)
    asking.server.changed(asking.tenant, name)
    return Said(204)


async def pause_queue(asking: Asking) -> Said:
    """Give no more jobs of it to anybody."""
    name = _name(asking)
    return _known(asking, name, await asking.calls.apause_served_queue(name))


async def resume_queue(asking: Asking) -> Said:
    """Let it go on."""
    name = _name(asking)
    return _known(asking, name, await asking.calls.aresume_served_queue(name))


async def get_secret(asking: Asking) -> Said:
    """What signs."""
    return Said(200, secrets_said((await _found(asking)).configuration))


async def rotate_secret(asking: Asking) -> Said:
    """Sign with a new secret; the old one signs along for a while."""
    name, body = _name(asking), asking.body
    overlap = duration(body.overlap, "overlap")
    if body.signing_secret is not None:
        checked_by_member(QueueConfiguration(secrets=(Secret(body.signing_secret),)))
    try:
        queue = await asking.calls.arotate_secret(name, secret=body.signing_secret, overlap=overlap)
    finally:
        asking.server.changed(asking.tenant, name)
    if queue is None:
        raise QueueNotFound(name)
    return Said(200, secrets_said(queue.configuration))


def _known(asking: Asking, name: str, queue: ServedQueue | None) -> Said:
    if queue is None:
        raise QueueNotFound(name)
    asking.server.changed(asking.tenant, name)
    return Said(200, said_of(queue))


async def _found(asking: Asking, *, counts: bool = False) -> ServedQueue:
    name = _name(asking)
    queue = await asking.calls.aserved_queue(name, counts=counts)
    if queue is None:
        raise QueueNotFound(name)
    return queue


def _name(asking: Asking) -> str:
    return names.name(asking.path["name"], "name")


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
