"""Send an idempotency key to a third party: for effects outside the database.

Choose `run.key` if the third party supports idempotency keys, as Stripe does. The key is the same
in every attempt and replay of the job, so the request is executed once, even if it is sent again.

If the third party does not support keys but can be queried, send the key as a reference and make
the call an unsafe step with `verify=`. A call that raised may have been executed, and only the
response was lost. So `verify` finds out, in the same attempt, and again in the next attempts while
it cannot tell. `not_done` lists the exceptions which prove that nothing was sent. If the third
party cannot be queried, leave out `verify`: the job is then buried as *unknown*, for an operator to
settle, and nothing is sent twice.

The key names the job, so there must be one job per effect: `unique` ensures this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from examples import partner
from examples.handlers.app import onefold, sql, transaction
from onefold import Done, NotDone, Run, Unique

if TYPE_CHECKING:
    from onefold import Enqueued

TABLES: Final = (
    "create table if not exists payment (order_id integer not null, receipt text not null)",
)


@onefold.job(unique=Unique("order_id"), unique_while="exists")
def charge(run: Run, order_id: int, cents: int) -> None:
    """Charge an order, at a bank that supports idempotency keys."""
    receipt = partner.order("/charges", cents, key=run.key("charge"))
    with run.transaction() as tx:
        tx.execute(sql("insert into payment values (?, ?)"), [order_id, receipt])


@onefold.job(unique=Unique("order_id"), unique_while="exists")
def refund(run: Run, order_id: int, cents: int) -> None:
    """Refund an order, at a bank without idempotency keys that can be queried."""
    careful = run.using(unsafe=True, verify=find_transfer, not_done=ConnectionRefusedError)
    receipt = careful.step("transfer", partner.order, "/transfers", cents, key=run.key("transfer"))
    with run.transaction() as tx:
        tx.execute(sql("insert into payment values (?, ?)"), [order_id, receipt])


def find_transfer(key: str) -> Done | NotDone:
    """Find out what happened to a transfer whose outcome is unknown."""
    receipt = partner.find("/transfers", key)
    return NotDone() if receipt is None else Done(receipt)


def enqueue() -> list[Enqueued[Any]]:
    """Enqueue a charge and its refund, each twice."""
    return [job.enqueue(order_id=1, cents=1990) for job in (charge, refund, charge, refund)]


def tell() -> list[str]:
    """Describe the result, line by line."""
    with transaction() as connection:
        rows = connection.execute("select order_id, receipt from payment order by receipt")
        return [f"order {order_id}: {receipt}" for order_id, receipt in rows]
