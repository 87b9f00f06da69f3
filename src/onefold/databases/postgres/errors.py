"""Errors of PostgreSQL as our errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from onefold.errors import DatabaseBusy, DatabaseUnavailable, InvalidInput, SerializationConflict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

ErrorClass: TypeAlias = Literal[
    "serialization", "lock_timeout", "duplicate_id", "connection_lost", "node_lost", "other"
]

SERIALIZATION: Final = {"40001", "40P01"}
IDLE_IN_TRANSACTION: Final = "25P03"
UNIQUE_VIOLATION: Final = "23505"
INTERNAL_ERROR: Final = "XX000"
# A lock timeout, and a statement timeout of the server or of the user.
LOCK_TIMEOUT: Final = {"55P03", "57014"}

# Connection exceptions, operator intervention, and a server that is starting or full.
_CONNECTION_CLASSES: Final = ("08", "57P")
# Errors of asyncpg about a connection that is closed or is just being closed.
_CLOSED_CONNECTION: Final = {("asyncpg", "InterfaceError"), ("asyncpg", "InternalClientError")}
_PREPARED_ELSEWHERE: Final = (
    "a pooler such as PgBouncer shares sessions between clients, so prepared statements fail. Set"
    " prepared_statements=False. Nothing of this call was stored."
)
_SENTENCES: Final = {
    "26000": _PREPARED_ELSEWHERE,
    "42P05": _PREPARED_ELSEWHERE,
    "53100": "the disk is full. Make room; nothing of this call was stored.",
    "53200": "the server is out of memory.",
    "53300": (
        "the server has no connection left. Lower the pools or raise max_connections (PgBouncer:"
        " max_client_conn)."
    ),
    IDLE_IN_TRANSACTION: (
        "the server ended the transaction, because this process did not go on with it for a while."
        " Nothing of this call was stored."
    ),
    "25006": "the server is read-only (a standby?). Connect to the primary.",
    "28000": "the server refused this user.",
    "28P01": "the server refused this user's password.",
    "3D000": "there is no such database. Create it first.",
    "42501": "this user may not use Onefold's tables. Grant it the rights, or use their owner.",
}


# libpq does not report the SQLSTATE of a rejected connection. These are the server's English
# sentences, here and below; in another language the error is raised unchanged.
_REFUSALS: Final = (
    (
        re.compile(
            r"too many (connections|clients)|remaining connection slots"
            r"|no more connections allowed"
        ),
        "53300",
    ),
    (re.compile(r'database "[^"]*" does not exist'), "3D000"),
    (re.compile(r"password authentication failed|no password supplied"), "28P01"),
    (
        re.compile(r'role "[^"]*" does not exist|no pg_hba\.conf entry|authentication failed'),
        "28000",
    ),
)

# What Citus says of a node that it cannot reach, on a connection that is well.
_CITUS_NODE: Final = "connection to the remote node"
# Citus stores a batch by COPY, and reports a node's error without its SQLSTATE.
_CITUS_MESSAGES: Final = (
    (re.compile(r"duplicate key value violates unique constraint"), UNIQUE_VIOLATION),
    (re.compile(r"canceling statement due to lock timeout"), "55P03"),
    (re.compile(r"canceling statement due to statement timeout"), "57014"),
    (re.compile(r"deadlock detected"), "40P01"),
)


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of an error of psycopg or asyncpg; empty if there is none."""
    error = _server_error(error)
    state: str = getattr(error, "sqlstate", None) or ""
    if state == "08P01" and str(error).startswith("bind message supplies"):
        # A prepared statement of this name exists, with another text: of another client.
        return "26000"
    if state == INTERNAL_ERROR:
        return _by_sentence(str(error), _CITUS_MESSAGES) or state
    if not state and "FATAL:" in (message := str(error)):
        return _by_sentence(message, _REFUSALS)
    return state


def _by_sentence(message: str, known: Sequence[tuple[re.Pattern[str], str]]) -> str:
    return next((state for sentence, state in known if sentence.search(message)), "")


def _server_error(error: BaseException) -> BaseException:
    """The server's error: psycopg's pipeline may raise its own error over it."""
    context = error.__context__
    hidden = isinstance(error, psycopg.OperationalError) and not error.sqlstate
    return context if hidden and isinstance(context, psycopg.Error) and context.sqlstate else error


def classify(error: BaseException, *, connection_lost: bool) -> ErrorClass:
    """The class of an error, which decides about a retry of our transaction."""
    state = sqlstate(error)
    if state in SERIALIZATION or state == IDLE_IN_TRANSACTION:
        return "serialization"
    if state in LOCK_TIMEOUT:
        return "lock_timeout"
    if state == UNIQUE_VIOLATION:
        return "duplicate_id"
    if state == "08006" and str(_server_error(error)).startswith(_CITUS_NODE):
        return "node_lost"
    if state.startswith(_CONNECTION_CLASSES) or (not state and connection_lost):
        return "connection_lost"
    return "other"


def is_lost(error: BaseException) -> bool:
    """Whether `begin` failed because the connection that a library gave is dead."""
    kind = type(error)
    lost = (
        # A subclass is an error of psycopg's pool, which gave no connection.
        kind is psycopg.OperationalError
        or isinstance(error, ConnectionResetError)
        or (kind.__module__.partition(".")[0], kind.__name__) in _CLOSED_CONNECTION
        or getattr(error, "connection_invalidated", False)  # SQLAlchemy
    )
    return classify(error, connection_lost=lost) == "connection_lost"


def translated(error: BaseException, label: str, busy: DatabaseBusy) -> BaseException:
    """The error to raise instead; the same one if it is our own bug."""
    error = _server_error(error)
    state = sqlstate(error)
    if state in SERIALIZATION:
        return SerializationConflict(str(error).partition("\n")[0])
    if state in LOCK_TIMEOUT:
        return busy
    if state == "08P01" and "query_wait_timeout" in str(error):
        return DatabaseBusy(
            "PgBouncer had no session for us in time (query_wait_timeout): PostgreSQL behind it is"
            " away, or others hold them all. Shorten their transactions, or raise"
            " default_pool_size.",
            waited=busy.waited,
        )
    if state in _SENTENCES:
        return DatabaseUnavailable(label, _SENTENCES[state])
    unreachable = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if state.startswith(_CONNECTION_CLASSES) or (unreachable and not state):
        reason = " ".join(str(error).split())
        return DatabaseUnavailable(
            label, f"the server cannot be reached ({reason}). Is it running, and is the URL right?"
        )
    return error


def tables_in_use(waited: timedelta) -> DatabaseBusy:
    """The error of a migration that has waited for a lock in vain."""
    return DatabaseBusy(
        "another transaction uses Onefold's tables, and they cannot be changed meanwhile. End it"
        " (pg_stat_activity shows it, perhaps as 'idle in transaction') and migrate again. Nothing"
        " was changed.",
        waited=waited,
    )


SECRETS: Final = (
    "password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key",
)  # fmt: skip
"""The parameters of libpq that are secrets."""
_USER: Final = re.compile(r"\w+://[^@/]*@?")
"""The user and the password for libpq, if it ends with an @."""


def without_password(url: str) -> str:
    """The URL without secrets. A command with it must work if the password is given elsewhere."""
    # libpq would read the rest of such a password as a host or a name, and it would be shown.
    if "@" in _USER.sub("", url, count=1).partition("?")[0]:
        raise InvalidInput(
            "url", "has an @ too many: a user or a password has %40 for @, %2F for / and %25 for %"
        )
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # The original message may quote the password.
        raise InvalidInput("url", "is not a PostgreSQL URL that psycopg can read") from None
    for secret in SECRETS:
        parts.pop(secret, None)
    shown = {name: quote(str(value), safe="") for name, value in parts.items()}
    user = f"{shown.pop('user')}@" if "user" in shown else ""
    path = f"/{shown.pop('dbname', '')}"
    # A folder of sockets, or several hosts, cannot be written before the path.
    host = shown.pop("host") if re.fullmatch(r"[\w.-]+", shown.get("host", "")) else ""
    port = f":{shown.pop('port')}" if host and shown.get("port", "").isdigit() else ""
    rest = "&".join(f"{name}={value}" for name, value in shown.items())
    return f"postgresql://{user}{host}{port}{path}{'?' if rest else ''}{rest}"
