"""Record what was processed, in the transaction that processes it: exactly once.

Choose it if the effect is rows in the database of the job, especially if they add up: balances,
stock, counters. It is the strongest pattern, and the simplest.

The job's own record is such a ledger: `run.transaction()` commits your rows and the job's
completion together. A run that dies has written nothing, and a late run is rolled back.

If one message may arrive as several jobs (a sender that sends twice, two queues), record the
message: `within(connection).once(…)` does this, and any table with a unique key works too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from examples.handlers.app import onefold, sql, transaction
from onefold import Run, Unique

if TYPE_CHECKING:
    from onefold import Enqueued

TABLES: Final = (
    "create table if not exists account (id integer primary key, cents integer not null)",
)

CREDIT: Final = "update account set cents = cents + ? where id = ?"


@onefold.job(unique=Unique(), unique_while="exists")
def credit(run: Run, account_id: int, cents: int) -> None:
    """Credit an account, once per job."""
    with run.transaction() as tx:
        tx.execute(sql(CREDIT), [cents, account_id])


@onefold.job
def credit_event(event_id: str, account_id: int, cents: int) -> None:
    """Credit an account, once per event, even if several jobs carry the event."""
    with transaction() as connection, onefold.within(connection).once("credit", event_id) as claim:
        if claim.won:
            connection.execute(sql(CREDIT), [cents, account_id])


def enqueue() -> list[Enqueued[Any]]:
    """Enqueue one credit twice, and one event as two jobs."""
    with transaction() as connection:
        connection.execute(
            "insert into account (id, cents) values (1, 0), (2, 0) on conflict do nothing"
        )
    return [
        credit.enqueue(account_id=1, cents=500),
        credit.enqueue(account_id=1, cents=500),
        credit_event.enqueue("evt_9", account_id=2, cents=700),
        credit_event.enqueue("evt_9", account_id=2, cents=700),
    ]


def tell() -> list[str]:
    """Describe the result, line by line."""
    with transaction() as connection:
        rows = connection.execute("select id, cents from account order by id")
        return [f"account {account_id} has {cents} cents" for account_id, cents in rows]
