"""Copies a SQLite file while it is in use."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

from onefold.databases import raise_translated
from onefold.errors import DatabaseUnavailable, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onefold.databases.sqlite.database import SqliteDatabase

PAGES: Final = 1000
"""Pages per step."""


def back_up(
    database: SqliteDatabase, target: Path, *, force: bool, progress: Callable[[int, int], None]
) -> None:
    """Copy the file to `target`, check the copy, and only then give it its name.

    `progress` receives the pages that are copied, and all of them. Writers are not blocked: the
    copy is the state at its start.
    """
    if target.exists() and target.samefile(database.path):
        raise InvalidInput("file", f"{target} is the database itself")
    if target.exists() and not force:
        raise _exists(target)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    database.identity()
    try:
        with closing(database.connect()) as source:
            # An open read transaction keeps the state: a copy that sees later writes starts again.
            source.execute("begin")
            source.execute("select count(*) from sqlite_master").fetchone()
            with closing(sqlite3.connect(part, isolation_level=None)) as copy:
                source.backup(
                    copy, pages=PAGES, progress=lambda _, left, all_: progress(all_ - left, all_)
                )
                (check,) = copy.execute("pragma integrity_check(1)").fetchone()
        if check != "ok":
            raise DatabaseUnavailable(database.label, f"the copy is damaged: {check}")
        _give_name(part, target, force=force)
    except sqlite3.Error as error:
        raise_translated(database.translated(error), error)
    except OSError as error:
        reason = f"{target} cannot be written: {error.strerror}"
        raise DatabaseUnavailable(database.label, reason) from error
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            part.with_name(part.name + suffix).unlink(missing_ok=True)


def _give_name(part: Path, target: Path, *, force: bool) -> None:
    """Durably, and without replacing a file that has appeared meanwhile."""
    with part.open("rb+") as written:
        os.fsync(written.fileno())
    try:
        if force:
            part.replace(target)
        else:
            target.hardlink_to(part)
    except FileExistsError:
        raise _exists(target) from None


def _exists(target: Path) -> InvalidInput:
    return InvalidInput("file", f"{target} exists already: choose another name, or add --force")
