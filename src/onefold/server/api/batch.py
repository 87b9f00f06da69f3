"""`POST /v1/queues/{name}/jobs/batch`: many jobs at once, all or nothing, an answer for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from onefold.errors import InvalidInput
from onefold.model.served_queue import qualified
from onefold.server.api.bounds import Seconds
from onefold.server.api.publish import (
    CREATED,
    KNOWN,
    SEPARATOR,
    JobBody,
    Published,
    call_options,
    new_job_of,
    own_key,
    published,
)
from onefold.server.asking import Said
from onefold.server.problems import BadBody, camel
from onefold.server.route import Route
from onefold.server.wire import Answer, Body

if TYPE_CHECKING:
    from onefold.model.job import NewJob
    from onefold.model.served_queue import QueueConfiguration
    from onefold.server.asking import Asking

MOST: Final = 10_000


class BatchBody(Body):
    """Jobs to be published together, and what is to be done about duplicates."""

    items: Annotated[list[JobBody], msgspec.Meta(max_length=MOST)]
    on_duplicate: Literal["keep", "raise", "replace", "rerun"] = "keep"
    on_mismatch: Literal["flag", "raise"] = "flag"
    max_wait: Seconds | None = None


class PublishedMany(Answer):
    """An answer for each item, in order."""

    items: list[Published]
    inserted: int
    """How many jobs are new."""
    skipped: int
    """How many stood already, or are duplicates of an earlier item."""


async def publish_batch(asking: Asking) -> Said:
    """201 where any job is new, 200 where all of them stood already."""
    body: BatchBody = asking.body
    name = asking.path["name"]
    configuration = await asking.server.queues.get(asking.tenant, name)
    try:
        many = await asking.calls.aenqueue_many(
            _new_jobs(asking, body, name, configuration),
            **call_options(body.on_duplicate, body.on_mismatch, body.max_wait),
        )
    except InvalidInput as error:
        raise _placed(error) from error
    items = [published(enqueued) for enqueued in many.items]
    status = CREATED if many.inserted else KNOWN
    return Said(status, PublishedMany(items=items, inserted=many.inserted, skipped=many.skipped))


def _new_jobs(
    asking: Asking, body: BatchBody, name: str, configuration: QueueConfiguration
) -> list[NewJob]:
    queue = qualified(asking.tenant, name)
    new_jobs: list[NewJob] = []
    for index, item in enumerate(body.items):
        try:
            new_job = new_job_of(
                item,
                name=name,
                queue=queue,
                configuration=configuration,
                key=_key(asking.key, index, item.idempotency_key),
                request_id=asking.request_id,
            )
        except InvalidInput as error:
            raise error.at(index) from error
        new_jobs.append(new_job)
    return new_jobs


def _key(header: str | None, index: int, said: str | None) -> str | None:
    """An item's own key; or one by which a retry of the whole batch finds the item again."""
    if said is not None:
        return own_key(said)
    return None if header is None else f"{header}{SEPARATOR}{index}"


def _placed(error: InvalidInput) -> InvalidInput:
    """The same refusal, by the place in the body."""
    if error.item is None:
        return error
    return BadBody(f"items[{error.item}].{camel(error.field)}", error.reason)


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/queues/{name}/jobs/batch",
        name="publishJobs",
        summary="Publish many jobs",
        description=(
            f"Up to {MOST} jobs, all or nothing; the answers are in the order of the items. With"
            " the header Idempotency-Key, items that have no key of their own get one of it and"
            f" their place ({SEPARATOR} between them), so that the whole request can be sent again."
        ),
        scope="publish",
        endpoint=publish_batch,
        body=BatchBody,
        answers={CREATED: PublishedMany, KNOWN: PublishedMany},
        problems=(404, 409, 422),
        keyed="native",
    ),
)
