"""`onefold serve`: the HTTP server, in one process or in several."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib import import_module
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated, Final

import typer

from onefold import InvalidInput, UsageError
from onefold.cli import logs, parsers
from onefold.cli.config import DATABASE

if TYPE_CHECKING:
    from onefold.server.app import ServerApp

TARGET: Final = "onefold.cli.serve:served"


_option = partial(parsers.option, "ONEFOLD_SERVE_")


def serve(
    *,
    database: Annotated[
        str,
        typer.Option(
            metavar="URL",
            envvar="ONEFOLD_DATABASE",
            show_envvar=False,
            help="sqlite:///jobs.db or postgresql://user@host/name",
        ),
    ] = DATABASE,
    schema: Annotated[
        str, _option("SCHEMA", "NAME", "The schema of the tables on PostgreSQL.")
    ] = "onefold",
    host: Annotated[str, _option("HOST", "ADDRESS", "The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, _option("PORT", "N", "The port, for HTTP/1.1 and cleartext HTTP/2.")
    ] = 7890,
    processes: Annotated[int, _option("PROCESSES", "N", "Processes that share the port.")] = 1,
    push: Annotated[
        bool,
        _option(
            "PUSH",
            None,
            "Also push jobs to endpoints, and rescue, prune, sweep and tick.",
            "--push/--no-push",
        ),
    ] = True,
    push_concurrency: Annotated[
        int, _option("PUSH_CONCURRENCY", "N", "Pushes at once, in each process.")
    ] = 200,
    push_allow: Annotated[
        str | None,
        _option(
            "PUSH_ALLOW", "NETWORK,…", "Private networks or hosts to allow for pushes.  [none]"
        ),
    ] = None,
    migrate: Annotated[
        bool,
        _option("MIGRATE", None, "Migrate the tables at the start.", "--migrate/--no-migrate"),
    ] = True,
    max_body: Annotated[int, _option("MAX_BODY", "BYTES", "The largest body of a request.")] = 4
    * 1024
    * 1024,
    request_timeout: Annotated[
        str, _option("REQUEST_TIMEOUT", "TIME", "How long a request may take.")
    ] = "30s",
    database_wait: Annotated[
        str,
        _option("DATABASE_WAIT", "TIME", "How long a request waits for an unavailable database."),
    ] = "2s",
    body_timeout: Annotated[
        str, _option("BODY_TIMEOUT", "TIME", "How long a client may take to send a body.")
    ] = "15s",
    header_timeout: Annotated[
        str, _option("HEADER_TIMEOUT", "TIME", "How long a client may take to send headers.")
    ] = "10s",
    grace: Annotated[str, _option("GRACE", "TIME", "How long a stop may take.")] = "30s",
    tls_certificate: Annotated[
        str | None, _option("TLS_CERTIFICATE", "FILE", "A certificate chain in PEM; enables HTTPS.")
    ] = None,
    tls_key: Annotated[str | None, _option("TLS_KEY", "FILE", "Its private key in PEM.")] = None,
    access_log: Annotated[
        bool,
        _option("ACCESS_LOG", None, "Log a line for each request.", "--access-log/--no-access-log"),
    ] = True,
    secret: Annotated[
        str | None,
        _option(
            "SECRET",
            "TEXT",
            "Signs the sessions of the dashboard; the same on all machines.  [new at each start]",
        ),
    ] = None,
    log_format: Annotated[str, _option("LOG_FORMAT", "FORMAT", "text or json")] = "text",
    log_level: Annotated[
        str, _option("LOG_LEVEL", "LEVEL", "debug, info, warning or error")
    ] = "info",
) -> None:
    """Serve the dashboard and the HTTP API until a signal. Times are like 30s, 5m, 250ms.

    Options that are not given are read from the environment (ONEFOLD_SERVE_PORT), then from
    [serve] of onefold.toml or [tool.onefold.serve] of pyproject.toml. The dashboard is at /, the
    API reference at /v1/docs.
    """
    try:
        from onefold.server import granian
        from onefold.server.app import ServerSettings

        if push:
            import_module("onefold.push.push_worker")  # each process imports it at its start
    except ImportError as error:
        raise UsageError(
            f"The server needs the extra server ({error.name} is not installed):"
            " pip install 'onefold[server]'"
        ) from error
    logs.configure(log_format, log_level)
    if (tls_certificate is None) is not (tls_key is None):
        raise InvalidInput("tls_certificate", "and tls_key belong together: set both or neither")
    options = granian.ServeOptions(
        database=database,
        schema=schema,
        database_wait=parsers.duration(database_wait, "database_wait"),
        host=host,
        port=granian.checked_port(port),
        processes=parsers.process_count(processes),
        migrate=migrate,
        settings=ServerSettings(
            max_body=max_body,
            request_timeout=parsers.duration(request_timeout, "request_timeout"),
            body_timeout=parsers.duration(body_timeout, "body_timeout"),
            grace=parsers.duration(grace, "grace"),
            push=push,
            push_concurrency=push_concurrency,
            push_allow=tuple(filter(None, (push_allow or "").split(","))),
            access_log=access_log,
            secret=token_urlsafe(32) if secret is None else secret,
        ),
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        header_timeout=parsers.duration(header_timeout, "header_timeout"),
        log_format=log_format,
        log_level=log_level,
    )
    with granian.reserved(options.host, options.port):
        for line in asyncio.run(granian.prepare(options)):
            typer.echo(line)
        granian.serve(options, TARGET)


def served() -> ServerApp:
    """The application of one process. Called by granian."""
    from onefold.server import granian

    options = granian.passed_options()
    logs.configure(options.log_format, options.log_level)
    return granian.application(options)
