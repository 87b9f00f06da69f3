"""An interrupt reaches its caller, and no connection of the pool is lost."""

from itertools import count
from typing import Any

import psycopg
import pytest

from onefold import Onefold
from onefold.databases.handler_transaction import abegin, begin
from onefold.databases.postgres.transaction import COMMIT, Query, Session
from tests.faults.callers import Caller

CALLS = 12
"""More than the connections of a process."""


class InterruptedSession(Session):
    """A connection that is interrupted before one of its exchanges with the server."""

    exchanges_left: int = -1

    def wait(self, *args: Any, **options: Any) -> Any:
        self.exchanges_left -= 1
        if self.exchanges_left == 0:
            raise KeyboardInterrupt
        return super().wait(*args, **options)


def test_an_interrupt_in_a_pipeline_is_not_taken_for_a_lost_connection(postgres_url: str) -> None:
    interrupted = 0
    for exchange in count(1):
        with InterruptedSession.connect(postgres_url, autocommit=True) as session:
            session.exchanges_left = exchange
            try:
                session.send([Query(b"begin"), Query(b"select 1"), Query(COMMIT)])
            except KeyboardInterrupt:
                session.close()
                interrupted += 1
            else:
                session.exchanges_left = -1
                break

    assert interrupted > 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_transaction_that_cannot_be_ended_costs_no_connection(
    postgres_url: str, migrated: str, make_caller: Any, error: type[BaseException]
) -> None:
    onefold = Onefold(postgres_url, schema=migrated)
    caller: Caller = make_caller(onefold)
    for _ in range(CALLS):
        # Psycopg refuses to end a transaction before the one inside of it.
        with pytest.raises((error, psycopg.ProgrammingError)):
            caller.wait(_fail(caller, onefold, error))

    assert caller("enqueue", "email").inserted


def _fail(caller: Caller, onefold: Onefold, error: type[BaseException]) -> Any:
    database = onefold.context.database
    if caller.colour == "async":
        return _fail_async(onefold, error)
    with begin(None, database) as transaction:
        psycopg.Transaction(transaction.connection).__enter__()
        raise error


async def _fail_async(onefold: Onefold, error: type[BaseException]) -> None:
    async with await abegin(None, onefold.context.database) as transaction:
        await psycopg.AsyncTransaction(transaction.connection).__aenter__()
        raise error
