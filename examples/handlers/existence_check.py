"""Check whether the result exists: for named things that can be written atomically.

Choose it if the check is cheap: a file, an object in a bucket, a branch.

The check alone proves nothing: two runs may check at the same time, and both find nothing. It only
saves work. Two other things make the handler correct. The name follows from the job's arguments,
so every run writes the same thing. And the last action writes the complete thing atomically, so a
run that dies leaves nothing that looks complete.
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
    """Write the invoice of an order, unless it exists."""
    invoice = FOLDER / f"{order_id}.txt"
    if invoice.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    draft = FOLDER / f".{order_id}-{run.id}-{run.fence}"  # a name of this run only
    draft.write_text(f"Invoice for order {order_id}\n")
    draft.replace(invoice)  # atomic


def enqueue() -> list[Enqueued[Any]]:
    """Enqueue two orders, each twice."""
    return [write_invoice.enqueue(order_id) for order_id in (1, 2, 1, 2)]


def tell() -> list[str]:
    """Describe the result, line by line."""
    return [f"{path}: {path.read_text().strip()}" for path in sorted(FOLDER.glob("*.txt"))]
