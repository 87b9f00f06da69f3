"""Run one of the examples: `python -m examples.handlers ledger`."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from examples.handlers.app import onefold, transaction
from examples.partner import Partner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold import Enqueued, Job

NAMES: Final = (
    "existence_check",
    "upsert",
    "third_party_key",
    "lock",
    "cached_result",
    "ledger",
    "unique_constraint",
)

ENDED: Final = {"completed", "dead", "cancelled"}


class Example(Protocol):
    """The interface of an example."""

    TABLES: Sequence[str]

    def enqueue(self) -> list[Enqueued[Any]]:
        """Enqueue a few jobs, twice."""
        ...

    def tell(self) -> list[str]:
        """Describe the result, line by line."""
        ...


async def main(name: str) -> None:
    """Enqueue, run a worker until all jobs have ended, and print the result."""
    example = cast("Example", import_module(f"examples.handlers.{name}"))
    onefold.migrate()
    with transaction() as connection:
        for table in example.TABLES:
            connection.execute(table)
    with Partner() as partner:
        os.environ["PARTNER_URL"] = partner.url
        async with onefold:
            await work(example.enqueue())
            for line in example.tell():
                print(line)


async def work(enqueued: list[Enqueued[Any]]) -> None:
    """Run a worker until these jobs have ended, and print how."""
    for answer in enqueued:
        print(f"enqueued {answer.id}{', a duplicate' if answer.duplicate else ''}")
    async with onefold.worker():
        for job_id in dict.fromkeys(answer.id for answer in enqueued):
            job = await ended(job_id)
            why = f": {job.reason}" if job.reason else ""
            print(f"{job.kind} {job.id} is {job.state}{why}")


async def ended(job_id: str) -> Job:
    """Wait until the job has ended."""
    while True:
        job = await onefold.aget(job_id)
        if job is not None and job.state in ENDED:
            return job
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in NAMES:  # noqa: PLR2004 - the command, and a name
        sys.exit(f"Name an example: python -m examples.handlers {'|'.join(NAMES)}")
    asyncio.run(main(sys.argv[1]))
