"""`onefold serve`: runs the application with granian, in one process or in several.

Each process creates its own application from the options of the first process, which it receives
in an environment variable.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from contextlib import contextmanager
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.app.onefold import Onefold
from onefold.errors import InvalidInput, Needs, UsageError
from onefold.server.app import ServerApp, ServerSettings
from onefold.server.auth import is_loopback
from onefold.server.metrics import counted_together
from onefold.worker import supervisor

with Needs("onefold[server]"):
    from granian.constants import HTTPModes, Interfaces, Loops
    from granian.http import HTTP1Settings, HTTP2Settings
    from granian.log import LogLevels
    from granian.server import Server as Granian

if TYPE_CHECKING:
    from collections.abc import Generator

VARIABLE: Final = "ONEFOLD_SERVE_OPTIONS"
HEADERS: Final = 64 * 1024
"""Bytes of a request's line and headers, and of the read buffer."""
STREAMS: Final = 100
"""Concurrent requests per HTTP/2 connection."""
SEND_BUFFER: Final = 16 * 1024
"""Bytes of each response that wait for an HTTP/2 client that does not read."""
PING: Final = 20
"""Seconds between two HTTP/2 pings, and for the reply: dead connections are closed."""


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that a server process receives from the first process."""

    database: str
    schema: str = "onefold"
    database_wait: timedelta = timedelta(seconds=2)
    host: str = "127.0.0.1"
    port: int = 7890
    processes: int = 1
    migrate: bool = True
    settings: ServerSettings = ServerSettings()
    tls_certificate: str | None = None
    tls_key: str | None = None
    header_timeout: timedelta = timedelta(seconds=10)
    """How long a client may take to send its headers."""
    log_format: str = "text"
    log_level: str = "info"
    main: int = 0
    """The id of the process that starts the others."""

    @property
    def url(self) -> str:
        """The URL of the server."""
        scheme = "http" if self.tls_certificate is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"


async def prepare(options: ServeOptions) -> list[str]:
    """Migrate and check before the server starts; returns the lines to print."""
    lines: list[str] = []
    async with Onefold(options.database, schema=options.schema) as onefold:
        if options.migrate:
            applied = await onefold.amigrate()
            lines += [f"Applied the migration {one.number}: {one.name}." for one in applied]
        database = onefold.context.database.label  # without the password
        if not await onefold.api_keys.aexist():
            create = f"onefold apikeys create --database {shlex.quote(database)}"
            if options.schema != "onefold":
                create += f" --schema {shlex.quote(options.schema)}"
            if not is_loopback(options.host):
                raise UsageError(
                    "There is no API key, so every client that reaches"
                    f" {options.host} would have all rights. Create a key first"
                    f" ({create} --scope admin), or serve on loopback (--host 127.0.0.1)."
                )
            lines.append("No API keys: every process on this machine has all rights. Create one:")
            lines.append(f"  {create} --scope admin")
        lines.append(f"Onefold serves {database} at {options.url}")
        lines.append(f"The API reference: {options.url}/v1/docs")
        lines.append(f"The dashboard: {options.url}/")
    return lines


def serve(options: ServeOptions, target: str) -> None:
    """Serve until a signal; running requests may end within the grace.

    `target` is the function that creates the application of a process, as `module:function`.
    """
    anonymous = is_loopback(options.host)
    options = msgspec.structs.replace(
        options,
        main=os.getpid(),
        settings=msgspec.structs.replace(options.settings, anonymous=anonymous),
    )
    os.environ[VARIABLE] = msgspec.json.encode(options).decode()
    grace = int(options.settings.grace.total_seconds()) + 5
    milliseconds = int(options.header_timeout.total_seconds() * 1000)
    server = Granian(
        target,
        address=options.host,
        port=options.port,
        interface=Interfaces.ASGI,
        workers=options.processes,
        http=HTTPModes.auto,
        loop=Loops.auto,
        websockets=False,
        log_enabled=True,
        log_access=False,
        log_level=LogLevels.warning,
        http1_settings=HTTP1Settings(header_read_timeout=milliseconds, max_buffer_size=HEADERS),
        http2_settings=HTTP2Settings(
            max_headers_size=HEADERS,
            max_concurrent_streams=STREAMS,
            max_send_buffer_size=SEND_BUFFER,
            keep_alive_interval=PING * 1000,
            keep_alive_timeout=PING,
        ),
        ssl_cert=None if options.tls_certificate is None else Path(options.tls_certificate),
        ssl_key=None if options.tls_key is None else Path(options.tls_key),
        respawn_failed_workers=True,
        workers_kill_timeout=grace,
        factory=True,
    )
    with counted_together(options.processes):
        server.serve()


def passed_options() -> ServeOptions:
    """The options that the first process has passed to this one."""
    text = os.environ.get(VARIABLE)
    if text is None:
        raise UsageError(
            "This runs only in `onefold serve`; create your own application with create_app()."
        )
    return msgspec.json.decode(text, type=ServeOptions)


def application(options: ServeOptions) -> ServerApp:
    """The application of one process; it stops when the first process is gone."""
    supervisor.stop_with_parent(options.main, options.settings.grace)
    onefold = Onefold(options.database, schema=options.schema, database_wait=options.database_wait)
    return ServerApp(onefold, options.settings, closes=True)


@contextmanager
def reserved(host: str, port: int) -> Generator[None]:
    """Reserve a port, and raise an error if another process uses it.

    The sockets of granian share a port silently with all others that allow it. They are opened
    seconds later, when the database is ready.
    """
    try:
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET  # noqa: PLR2004
    except ValueError:
        raise InvalidInput("host", f"must be an IP address like 127.0.0.1, got {host!r}") from None
    with socket.socket(family, socket.SOCK_STREAM) as holder:
        # Connections that ended a moment ago do not block the port.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((host, port))
        except OSError as error:
            raise UsageError(
                f"The server cannot listen on {host}, port {port}: {error.strerror}. Stop what"
                " listens there, or choose another address or port (--host, --port)."
            ) from error
        if sys.platform != "linux":  # there, granian's first process binds the port itself
            holder.close()
        else:
            # From now on granian's sockets may bind the port, too.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        yield


def checked_port(port: int) -> int:
    """Check a port number."""
    if not 1 <= port <= 65535:  # noqa: PLR2004 - the range of two bytes
        raise InvalidInput("port", f"must be a whole number from 1 to 65535, got {port}")
    return port
