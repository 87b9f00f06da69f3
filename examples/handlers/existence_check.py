"""Look whether it is there: for what has a name, can be seen, and is put there in one go.

Choose it where the effect can be looked at cheaply: a file, an object in a bucket, a branch.

Two things make it right, and the look is neither of them. The name is made of the job's arguments
alone, so that every run means the same thing; and the last act puts the whole of it there at once,
so that a run that dies has left nothing that could be taken for it. The look saves work. On its
own it proves nothing: two runs may look at the same time, and both find nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from examples.handlers.app import onefold
from onefold import Run

if TYPE_CHECKING:
    from onefold import Enqueued

TABLES: Final = ()

FOLDER: Final = Path(os.environ.get("INVOICES", "invoices"))


@onefold.job
def write_invoice(run: Run, order_id: int) -> None:
    """Write the invoice of an order, unless it is written."""
    invoice = FOLDER / f"{order_id}.txt"
    if invoice.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    draft = FOLDER / f".{order_id}-{run.id}-{run.fence}"  # a name of this run only
    draft.write_text(f"Invoice for order {order_id}\n")
    draft.replace(invoice)  # whole, or not at all


def enqueue() -> list[Enqueued[Any]]:
    """Two orders, each asked for twice."""
    return [write_invoice.enqueue(order_id) for order_id in (1, 2, 1, 2)]


def tell() -> list[str]:
    """What is there now."""
    return [f"{path}: {path.read_text().strip()}" for path in sorted(FOLDER.glob("*.txt"))]
