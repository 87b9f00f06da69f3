"""SQLite's errors as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onefold.errors import DatabaseUnavailable, SerializationConflict

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

# The low byte of an extended error code is the primary one.
PRIMARY: Final = 0xFF
BUSY: Final = 5
LOCKED: Final = 6
BUSY_SNAPSHOT: Final = 517

SENTENCES: Final = {
    8: "the file or its folder is read-only. Give this user the right to write to both.",
    10: "the disk failed to read or write. Look at the system's log.",
    11: "the file is damaged. Restore it from a backup.",
    13: "the disk is full. Make room; nothing of this call was stored.",
    14: "the file cannot be opened. Does its folder exist, and may this user read it?",
    23: "access is not allowed.",
    26: "the file is not a SQLite database.",
}


def code_of(error: BaseException) -> int:
    """SQLite's extended error code, 0 where there is none."""
    return getattr(error, "sqlite_errorcode", 0)


def is_busy(error: BaseException) -> bool:
    """Another connection has the lock; it may be free a moment later."""
    code = code_of(error)
    return code & PRIMARY in {BUSY, LOCKED} and code != BUSY_SNAPSHOT


def is_stale_snapshot(error: BaseException) -> bool:
    """A transaction that began by reading may not write any more."""
    return code_of(error) == BUSY_SNAPSHOT


def translated(error: sqlite3.Error, label: str, busy: Callable[[], Exception]) -> Exception:
    """The error to raise instead; the same one where it is our own mistake."""
    if is_stale_snapshot(error):
        return SerializationConflict("it began by reading, and the file has changed since")
    if is_busy(error):
        return busy()
    if sentence := SENTENCES.get(code_of(error) & PRIMARY):
        return DatabaseUnavailable(label, sentence)
    return error
