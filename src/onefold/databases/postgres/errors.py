"""PostgreSQL's errors as ours."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import psycopg

from onefold.errors import DatabaseBusy, DatabaseUnavailable, SerializationConflict

Verdict: TypeAlias = Literal["again", "waited", "lost", "final"]

SERIALIZATION: Final = {"40001", "40P01"}
# A lock timeout, and a statement timeout of the server's or the user's settings.
WAITED: Final = {"55P03", "57014"}

# Connection exceptions, operator intervention, and a server that is starting or full.
_LOST_CLASSES: Final = ("08", "57P")
_SENTENCES: Final = {
    "53100": "the disk is full. Make room; nothing of this call was stored.",
    "53200": "the server is out of memory.",
    "53300": "the server has no connection left. Lower the pools or raise max_connections.",
    "25006": "the server is read-only (a standby?). Connect to the primary.",
    "28000": "the server refused this user.",
    "28P01": "the server refused this user's password.",
    "3D000": "there is no such database. Create it first.",
    "42501": "this user may not use Onefold's tables. Grant it the rights, or use their owner.",
}


# libpq keeps the SQLSTATE of a refused connection to itself. These are the server's English
# sentences; in another language the refusal is passed on as it is.
_REFUSALS: Final = (
    (re.compile(r"too many (connections|clients)|remaining connection slots"), "53300"),
    (re.compile(r'database "[^"]*" does not exist'), "3D000"),
    (re.compile(r"password authentication failed|no password supplied"), "28P01"),
    (
        re.compile(r'role "[^"]*" does not exist|no pg_hba\.conf entry|authentication failed'),
        "28000",
    ),
)


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of a driver's error, psycopg's or asyncpg's; empty where there is none."""
    state: str = getattr(error, "sqlstate", None) or ""
    if not state and "FATAL:" in (message := str(error)):
        return next((found for sentence, found in _REFUSALS if sentence.search(message)), "")
    return state


def verdict(error: BaseException, *, connection_lost: bool) -> Verdict:
    """What a failed transaction of ours means: try again, wait, reconnect, or give up."""
    state = sqlstate(error)
    if state in SERIALIZATION:
        return "again"
    if state in WAITED:
        return "waited"
    if state.startswith(_LOST_CLASSES) or (not state and connection_lost):
        return "lost"
    return "final"


def translated(error: BaseException, label: str, busy: DatabaseBusy) -> BaseException:
    """The error to raise instead; the same one where it is our own mistake."""
    state = sqlstate(error)
    if state in SERIALIZATION:
        return SerializationConflict(str(error).partition("\n")[0])
    if state in WAITED:
        return busy
    if state in _SENTENCES:
        return DatabaseUnavailable(label, _SENTENCES[state])
    unreachable = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if state.startswith(_LOST_CLASSES) or (unreachable and not state):
        reason = " ".join(str(error).split())
        return DatabaseUnavailable(
            label, f"the server cannot be reached ({reason}). Is it running, and is the URL right?"
        )
    return error
