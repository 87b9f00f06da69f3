"""An interrupt reaches its caller, and no connection of the pool is lost."""

from typing import Any

import psycopg
import pytest

from onefold import Onefold
from onefold.databases.handler_transaction import abegin, begin
from onefold.databases.postgres.libpq import Session, Waits
from tests.faults.callers import Caller

CALLS = 12
"""More than the connections of a process."""


@pytest.mark.parametrize("texts", [["select 1"], ["begin", "select 1", "commit"]])
def test_an_interrupt_leaves_a_connection_that_is_known_to_be_midway(
    postgres_url: str, texts: list[str]
) -> None:
    with Session.connect(postgres_url, autocommit=True) as session:
        trip = session.exchange([session.request(text, {}) for text in texts])
        next(trip)
        trip.close()

        assert session.is_midway
        session.close()


def test_an_interrupt_is_raised_and_its_connection_is_replaced(
    postgres_url: str, migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Onefold(postgres_url, schema=migrated) as onefold:
        for call in range(CALLS):
            with monkeypatch.context() as patched:
                patched.setattr(Session, "drive", _interrupted)
                with pytest.raises(KeyboardInterrupt):
                    onefold.enqueue("email", unique_key=str(call))

        assert onefold.enqueue("email").inserted


def _interrupted(session: Session, trips: Waits[Any]) -> Any:
    """Interrupted while it waits for the response."""
    next(trips)
    assert session.is_midway
    raise KeyboardInterrupt


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
