"""What tests of PostgreSQL have in common: other users' URLs, held keys, and waiting."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from onefold import Onefold
from tests.fixtures.patience import HANG

PATIENCE = HANG


def until(condition: Callable[[], Any]) -> Any:
    """Wait for what must come, with a deadline."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "what the test waits for did not happen"
        threading.Event().wait(0.005)
    return found


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
