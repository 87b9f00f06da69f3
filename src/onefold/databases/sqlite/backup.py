"""Copies a SQLite file while it is in use."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

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
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    database.identity()
    try:
        _check(target, database.path, force=force)
        _create(part, like=database.path)
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
        reason = f"the copy to {target} failed: {error}"
        raise DatabaseUnavailable(database.label, reason) from error
    except OSError as error:
        reason = f"{target} cannot be written: {error.strerror}"
        raise DatabaseUnavailable(database.label, reason) from error
    finally:
        for file in _files(part):
            with suppress(OSError):
                file.unlink()


def _check(target: Path, source: Path, *, force: bool) -> None:
    """Reject a target that is part of a database, also of one that was there before."""
    if target.resolve() in _files(source.resolve()) or (
        target.exists() and target.samefile(source)
    ):
        raise InvalidInput("file", f"{target} is the database itself")
    if target.exists() and not force:
        raise _exists(target)
    if left := [file for file in _files(target)[1:] if file.exists()]:
        # SQLite would write the old log into the copy.
        raise InvalidInput(
            "file",
            f"{target} is a database that is in use, or was: {left[0]} exists. Choose another name,"
            " or end the processes that use it, and delete both",
        )


def _create(path: Path, *, like: Path) -> None:
    """Create an empty file that has no more readers than another one."""
    mode = stat.S_IMODE(like.stat().st_mode)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))


def _files(path: Path) -> list[Path]:
    """The files of a database."""
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-journal")]


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
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _exists(target: Path) -> InvalidInput:
    return InvalidInput("file", f"{target} exists already: choose another name, or add --force")
