"""A fence around a call, and its result kept: for what must not be called twice.

Choose `run.once` where a second call costs something, or does harm, and what it answered is needed
again. The first run that comes to the fence makes the call, and its result is stored; a rerun is
given the result.

A worker that dies inside of the fence, or an exception, leaves it closed: the call may have been
executed. `verify=` finds out; without it the job is buried as *unknown*. An exception that means
that nothing has happened gives the key back: `NotDone`, or one that `not_done=` names. (An unsafe
`run.step` is the same for a function; a fence is for a piece of code.)
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
    """Buy a label for a parcel; every call to the carrier makes another one, and costs."""
    key = run.key("label")

    async def find_label(_: str) -> Done | NotDone:
        receipt = await asyncio.to_thread(partner.find, "/labels", key)
        return NotDone() if receipt is None else Done(receipt)

    async with run.aonce(f"parcel {parcel_id}", verify=find_label) as claim:
        if claim.won:
            claim.result = await asyncio.to_thread(partner.order, "/labels", 495, key=key)
    return str(claim.result)


def enqueue() -> list[Enqueued[Any]]:
    """Two parcels, each asked for twice."""
    return [buy_label.enqueue(parcel_id) for parcel_id in (1, 2, 1, 2)]


def tell() -> list[str]:
    """What is there now."""
    jobs = onefold.find(kind=buy_label.kind)
    return sorted(f"parcel {job.payload['parcel_id']} has {job.result}" for job in jobs)
