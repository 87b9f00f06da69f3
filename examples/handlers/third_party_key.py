"""Give somebody else a key that names the attempt: for effects that happen elsewhere.

Choose `run.key` where the other side remembers idempotency keys, as Stripe does. The key is the
same over every attempt and replay of the job, so however often the request is sent, it counts once.

Where the other side remembers nothing, but can be asked, send the key along as a reference and make
it an unsafe step with `verify=`. A call that raises may have been executed: only the answer may be
lost. So `verify` asks what became of it, in the same attempt, and again in the next attempts while
it cannot tell. Exceptions that mean that nothing was sent are named by `not_done`. Where the other
side cannot be asked, leave `verify` out: the job is then buried as *unknown*, for a person to find
out, and nothing is sent twice.

The key names the job, so there must be one job for one effect: that is what `unique` is for.
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
    """Charge an order, at a bank that remembers keys."""
    receipt = partner.order("/charges", cents, key=run.key("charge"))
    with run.transaction() as tx:
        tx.execute(sql("insert into payment values (?, ?)"), [order_id, receipt])


@onefold.job(unique=Unique("order_id"), unique_while="exists")
def refund(run: Run, order_id: int, cents: int) -> None:
    """Pay an order back, by a bank that remembers no keys, but can be asked."""
    careful = run.using(unsafe=True, verify=find_transfer, not_done=ConnectionRefusedError)
    receipt = careful.step("transfer", partner.order, "/transfers", cents, key=run.key("transfer"))
    with run.transaction() as tx:
        tx.execute(sql("insert into payment values (?, ?)"), [order_id, receipt])


def find_transfer(key: str) -> Done | NotDone:
    """What became of a transfer whose outcome is unknown."""
    receipt = partner.find("/transfers", key)
    return NotDone() if receipt is None else Done(receipt)


def enqueue() -> list[Enqueued[Any]]:
    """A charge and its refund, each asked for twice."""
    return [job.enqueue(order_id=1, cents=1990) for job in (charge, refund, charge, refund)]


def tell() -> list[str]:
    """What is there now."""
    with transaction() as connection:
        rows = connection.execute("select order_id, receipt from payment order by receipt")
        return [f"order {order_id}: {receipt}" for order_id, receipt in rows]
