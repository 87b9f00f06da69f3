"""Remember what was processed, in the transaction that processes it: exactly once.

Choose it wherever the effect is rows in the database that the job is in, above all where they add
up: balances, stock, counters. Nothing else is as strong, and nothing is as simple.

The job's own record is such a ledger: `run.transaction()` commits your rows and the job's
completion together, so a run that dies has done nothing, and a run that comes late is rolled back.

Where one message may come as several jobs (a sender that sends twice, two queues), write down the
message: `within(connection).once(…)` does, and any table with a unique key would.
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
    """Credit an account, once per event, whichever job brings it."""
    with transaction() as connection, onefold.within(connection).once("credit", event_id) as claim:
        if claim.won:
            connection.execute(sql(CREDIT), [cents, account_id])


def enqueue() -> list[Enqueued[Any]]:
    """One credit asked for twice, and one event that comes as two jobs."""
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
    """What is there now."""
    with transaction() as connection:
        rows = connection.execute("select id, cents from account order by id")
        return [f"account {account_id} has {cents} cents" for account_id, cents in rows]
