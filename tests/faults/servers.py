"""What tests of PostgreSQL have in common: other users' URLs, held keys, and waiting."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from onefold import Onefold
from tests.fixtures.patience import HANG, until

__all__ = ["until"]

PATIENCE = HANG


def url_as(url: str, **parts: str) -> str:
    """The same server as another user, or another database."""
    known = conninfo_to_dict(url) | parts
    user = quote(str(known["user"]))
    password = f":{quote(str(known['password']))}" if "password" in known else ""
    settings = "&".join(
        f"{name}={quote(str(value))}"
        for name, value in known.items()
        if name not in {"user", "password", "dbname"}
    )
    return f"postgresql://{user}{password}@/{known.get('dbname', 'postgres')}?{settings}"


@contextmanager
def key_held(url: str, schema: str, key: str) -> Generator[None]:
    """Somebody's open transaction that has a unique key."""
    with closing(psycopg.connect(url)) as connection, Onefold(url, schema=schema) as onefold:
        onefold.within(connection).enqueue("mail", unique_key=key)
        yield
        connection.rollback()


@dataclass(frozen=True)
class Sessions:
    """Our sessions on the server, told from all others by a name."""

    url: str
    name: str
    observer: psycopg.Connection

    def states(self) -> list[str]:
        return [state for _, state in self._rows()]

    def pids(self) -> set[int]:
        return {pid for pid, _ in self._rows()}

    def end(self) -> None:
        """As an operator does, or a server that restarts; a pool may connect again at once."""
        ended = self.pids()
        assert ended
        query = "select pg_terminate_backend(pid) from unnest(%s) as pid"
        self.observer.execute(query, [list(ended)])
        until(lambda: not ended & self.pids())

    def until_ended(self) -> None:
        """Wait until the server has ended all of them."""
        until(lambda: not self.pids())

    def _rows(self) -> list[tuple[int, str]]:
        query = "select pid, state from pg_stat_activity where application_name = %s"
        return self.observer.execute(query, [self.name]).fetchall()


@pytest.fixture
def sessions(postgres_url: str, observer: psycopg.Connection) -> Sessions:
    name = f"sessions_{uuid4().hex[:8]}"
    return Sessions(url_as(postgres_url, application_name=name), name, observer)


async def reached(condition: Callable[[], object]) -> None:
    """Wait for it beside the event loop."""
    await asyncio.to_thread(until, condition)


def state_of(onefold: Onefold, job_id: str) -> str | None:
    """The state of a job; None if it is not stored."""
    job = onefold.get(job_id)
    return None if job is None else job.state
