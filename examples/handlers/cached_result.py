"""Fence a call and store its result, so that the call is not made twice.

Choose `run.once` if a second call is expensive or harmful, and its result is needed again. The
first run that reaches the block makes the call, and its result is stored. A rerun receives the
stored result.

If a worker dies inside the block, or an exception is raised, the block stays closed, because the
call may have been executed. `verify=` finds out; without it the job is buried as *unknown*. An
exception which proves that nothing happened frees the key: `NotDone`, or one listed in
`not_done=`. (An unsafe `run.step` does the same for a function; `run.once` is for a block.)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from examples import partner
from examples.handlers.app import onefold
from onefold import Done, NotDone, Run, Unique

if TYPE_CHECKING:
    from onefold import Enqueued

TABLES: Final = ()


@onefold.job(unique=Unique("parcel_id"), unique_while="exists", store_result=True)
async def buy_label(run: Run, parcel_id: int) -> str:
    """Buy a label for a parcel. Every call to the carrier buys another label."""
    key = run.key("label")

    async def find_label(_: str) -> Done | NotDone:
        receipt = await asyncio.to_thread(partner.find, "/labels", key)
        return NotDone() if receipt is None else Done(receipt)

    async with run.once(f"parcel {parcel_id}", verify=find_label) as claim:
        if claim.won:
            claim.result = await asyncio.to_thread(partner.order, "/labels", 495, key=key)
    return str(claim.result)


def enqueue() -> list[Enqueued[Any]]:
    """Enqueue two parcels, each twice."""
    return [buy_label.enqueue(parcel_id) for parcel_id in (1, 2, 1, 2)]


def tell() -> list[str]:
    """Describe the result, line by line."""
    jobs = onefold.find(kind=buy_label.kind)
    return sorted(f"parcel {job.payload['parcel_id']} has {job.result}" for job in jobs)
