"""A courier for the length of a test, and the queues that it pushes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from onefold import Job, Onefold, Queue
from onefold.model.checks import qualified
from onefold.model.queue import QueueSettings
from onefold.model.retry import Fixed
from onefold.push.push_worker import PushSettings, PushWorker
from tests.push.receiver import Receiver

SECRET = "whsec_" + "c2VjcmV0" * 4
AT_ONCE = Fixed(timedelta(0))


@asynccontextmanager
async def pushing(onefold: Onefold, **settings: Any) -> AsyncGenerator[PushWorker]:
    """A courier that looks often, and may push to loopback."""
    settings.setdefault("allow", ("127.0.0.1",))
    settings.setdefault("refresh", timedelta(milliseconds=100))
    settings.setdefault("grace", timedelta(seconds=10))
    async with PushWorker(onefold, PushSettings(**settings)) as courier:
        yield courier


async def make_queue(
    onefold: Onefold, endpoint: Receiver | str | None, name: str = "hooks", **settings: Any
) -> str:
    """A queue whose jobs are pushed to a receiver; answers with its name for the engine."""
    tenant = settings.pop("tenant", "")
    url = endpoint.url if isinstance(endpoint, Receiver) else endpoint
    settings.setdefault("signing_secret", SECRET)
    settings.setdefault("backoff", AT_ONCE)
    calls = onefold.tenant(tenant) if tenant else onefold
    await calls.queues.asave(name, QueueSettings(endpoint=url, **settings))
    return qualified(tenant, name)


async def publish(
    onefold: Onefold, count: int = 1, *, queue: str = "hooks", **more: Any
) -> list[str]:
    """Jobs whose payloads are their numbers."""
    more.setdefault("backoff", AT_ONCE)
    answers = [
        await onefold.aenqueue("charge", {"number": number}, queue=queue, **more)
        for number in range(count)
    ]
    return [answer.id for answer in answers]


async def job_of(onefold: Onefold, job_id: str) -> Job:
    job = await onefold.aget(job_id)
    assert job is not None
    return job


async def has(onefold: Onefold, job_id: str, **members: object) -> bool:
    """Whether a job has come to have these members."""
    job = await job_of(onefold, job_id)
    return all(getattr(job, name) == wanted for name, wanted in members.items())


async def queue_of(onefold: Onefold) -> Queue:
    """The queue of most tests."""
    queue = await onefold.queues.aget("hooks")
    assert queue is not None
    return queue


async def is_held(onefold: Onefold, why: str) -> bool:
    return (await queue_of(onefold)).held_why == why
