"""An Onefold, its declared jobs in a colour, and a worker that runs what is queued, by hand."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from onefold import Enqueued, EnqueuedMany, Enqueuer, Job, JobCall, Onefold
from onefold.jobs.job_function import DeclaredJob
from onefold.model.json_text import to_json
from tests.fixtures.colours import Colour, Coloured

LEASE = timedelta(seconds=60)
R = TypeVar("R")


class Stage:
    """What the tests of declared jobs play on."""

    def __init__(self, onefold: Onefold, colour: Colour) -> None:
        self.onefold = onefold
        self.colour: Colour = colour

    async def enqueue(self, job: Enqueuer[..., R], *args: Any, **kwargs: Any) -> Enqueued[R]:
        stored: Enqueued[R] = await Coloured(job, self.colour).enqueue(*args, **kwargs)
        return stored

    async def enqueue_many(
        self, job: Enqueuer[..., R], calls: Iterable[JobCall[..., R]]
    ) -> EnqueuedMany[R]:
        stored: EnqueuedMany[R] = await Coloured(job, self.colour).enqueue_many(calls)
        return stored

    async def result(self, enqueued: Enqueued[R], patience: timedelta | None = None) -> R:
        found: R = await Coloured(enqueued, self.colour).result(timeout=patience)
        return found

    async def get(self, enqueued: Enqueued[Any]) -> Job:
        """The job as the database has it."""
        job = await self.onefold.aget(enqueued.id)
        assert job is not None
        return job

    async def take(self, *queues: str) -> list[Job]:
        return await self.onefold.deliveries.atake(
            queues or ("default",), limit=100, worker="by hand", lease=LEASE
        )

    async def work(self, *queues: str) -> list[Any]:
        """Run everything that is due, as a worker would; answers with what was returned."""
        returned: list[Any] = []
        for job in await self.take(*queues):
            declared = self.onefold.jobs.get(job.kind)
            assert declared is not None
            value = await called(declared, job)
            returned.append(value)
            results = {job.id: to_json(value, "result")} if declared.stores_result else {}
            await self.onefold.deliveries.afinish([job], results=results)
        return returned


async def called(declared: DeclaredJob[..., Any], job: Job) -> Any:
    run: Any = "the run"
    args, kwargs = declared.bind(job, run)
    function: Callable[..., Any] = declared.function
    return await function(*args, **kwargs) if declared.is_async else function(*args, **kwargs)
