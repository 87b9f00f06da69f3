"""PostgreSQL's errors as ours."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from onefold.errors import DatabaseBusy, DatabaseUnavailable, SerializationConflict

Verdict: TypeAlias = Literal["again", "waited", "lost", "final"]

SERIALIZATION: Final = {"40001", "40P01"}
LOCK_NOT_AVAILABLE: Final = "55P03"

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


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of a driver's error, psycopg's or asyncpg's; empty where there is none."""
    return getattr(error, "sqlstate", None) or ""


def verdict(error: BaseException, *, connection_lost: bool) -> Verdict:
    """What a failed transaction of ours means: try again, wait, reconnect, or give up."""
    state = sqlstate(error)
    if state in SERIALIZATION:
        return "again"
    if state == LOCK_NOT_AVAILABLE:
        return "waited"
    if state.startswith(_LOST_CLASSES) or (not state and connection_lost):
        return "lost"
    return "final"


def translated(error: BaseException, label: str, busy: DatabaseBusy) -> BaseException:
    """The error to raise instead; the same one where it is our own mistake."""
    state = sqlstate(error)
    if state in SERIALIZATION:
        return SerializationConflict(str(error).partition("\n")[0])
    if state == LOCK_NOT_AVAILABLE:
        return busy
    if state in _SENTENCES:
        return DatabaseUnavailable(label, _SENTENCES[state])
    if state.startswith(_LOST_CLASSES) or not state:
        reason = " ".join(str(error).split())
        return DatabaseUnavailable(
            label, f"the server cannot be reached ({reason}). Is it running, and is the URL right?"
        )
    return error
