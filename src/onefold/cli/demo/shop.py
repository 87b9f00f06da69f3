"""The shop of the demo: an API, a form, a webhook and a job, with Onefold and without it.

`python -m onefold.cli.demo.shop PORT` serves both shops and Onefold itself. Each has a SQLite file.
Each shop stores what it has done in the table `effect`, where no constraint prevents a second row.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.requests import Request  # noqa: TC002 - read by Idempotency
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from onefold import Fixed, Onefold, Run
from onefold.cli import logs
from onefold.server import granian
from onefold.server.app import ServerSettings
from onefold.web.forms import Form, FormKeys
from onefold.web.starlette import Idempotency, Once
from onefold.web.webhooks import Received, StandardWebhooks, Webhook
from onefold.worker.supervisor import stop_with_parent

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

FOLDER: Final = Path(os.environ.get("ONEFOLD_DEMO", "."))
WITH: Final = FOLDER / "shop.db"
WITHOUT: Final = FOLDER / "plain.db"
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of this demo only
SHIPMENTS: Final = "shipments"
WORK: Final = 0.02
"""Seconds of a job: a killed worker is in the middle of some."""
GRACE: Final = timedelta(seconds=5)
PARENT: Final = "ONEFOLD_DEMO_PARENT"
"""The variable with the process that started this one, which may have ended by now."""
PATIENCE: Final = 30.0
"""Seconds to wait for SQLite's lock."""

TABLES: Final = "create table effect (surface text not null, purchase text not null)"
EFFECT: Final = "insert into effect (surface, purchase) values (?, ?)"

onefold: Onefold = Onefold(f"sqlite:///{WITH.absolute()}")
idempotency: Idempotency = Idempotency(onefold, transaction=onefold)
form_keys: FormKeys = FormKeys(SECRET)
payments: Webhook = Webhook(onefold, StandardWebhooks(SECRET), name="payments")


def create_tables() -> None:
    """Create the tables of both shops, and of Onefold."""
    onefold.migrate()
    for path, tables in (
        (WITH, TABLES),
        (WITHOUT, f"{TABLES}; create table job (number integer primary key, purchase text)"),
    ):
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(f"pragma journal_mode = wal; {tables}")


# --- with Onefold ---------------------------------------------------------------------------------


def session_of(request: Request) -> str:
    """The session of a browser."""
    return request.cookies.get("session", "")


@idempotency(principal=lambda _: "ann")
async def order(request: Request, once: Once) -> Response:
    """An API route: its row, its key and its response are one commit."""
    purchase = (await request.json())["purchase"]
    await once.connection.execute(EFFECT, ("API", purchase))
    return JSONResponse({"purchase": purchase}, 201)


async def form(request: Request) -> Response:
    """A page with a form, which has a key in a hidden field."""
    return HTMLResponse(f"<form>{form_keys.hidden_field('buy', session_of(request))}</form>")


@idempotency(principal=session_of, form=Form(form_keys, "buy"))
async def buy(request: Request, once: Once) -> Response:
    """The form is submitted."""
    async with request.form() as fields:
        await once.connection.execute(EFFECT, ("form", str(fields["purchase"])))
    return RedirectResponse("/with/form", 303)


@payments.process
async def paid(event: Received) -> None:
    """A webhook has arrived."""
    await event.connection.execute(EFFECT, ("webhook", event.json()["purchase"]))


@onefold.job(queue=SHIPMENTS, backoff=Fixed(timedelta(0)))
async def ship(purchase: str, run: Run) -> None:
    """A job: its row and its completion are one commit."""
    await asyncio.sleep(WORK)
    async with run.transaction() as connection:
        await connection.execute(EFFECT, ("job", purchase))


# --- without --------------------------------------------------------------------------------------


def plain(statement: str, *values: str) -> None:
    """Run one statement, and commit."""
    with closing(sqlite3.connect(WITHOUT, timeout=PATIENCE)) as connection, connection:
        connection.execute(statement, values)


def _plain_route(surface: str, statement: str = EFFECT) -> Any:
    def endpoint(request: Request) -> Response:
        values = (surface,) if statement is EFFECT else ()
        plain(statement, *values, request.query_params["purchase"])
        return Response(status_code=201)

    return endpoint


def run_plain_worker() -> None:
    """Take a job from the table, then do it, until the process is killed."""
    stop_with_parent(int(os.environ[PARENT]), GRACE)
    with closing(sqlite3.connect(WITHOUT, timeout=PATIENCE)) as connection:
        while True:
            with connection:
                found = connection.execute(
                    "delete from job where number = (select min(number) from job)"
                    " returning purchase"
                ).fetchall()
            time.sleep(WORK)
            with connection:
                connection.executemany(EFFECT, [("job", purchase) for (purchase,) in found])


# --- the server -----------------------------------------------------------------------------------


class DemoApp:
    """Both shops, and Onefold's own routes."""

    def __init__(self) -> None:
        self._server = granian.application(granian.passed_options())
        without = [
            Route("/orders", _plain_route("API"), methods=["POST"]),
            Route("/form", _plain_route("form"), methods=["POST"]),
            Route("/hooks", _plain_route("webhook"), methods=["POST"]),
            Route(
                "/jobs",
                _plain_route("job", "insert into job (purchase) values (?)"),
                methods=["POST"],
            ),
        ]
        self._shops = Starlette(
            routes=[
                Route("/with/orders", order, methods=["POST"]),
                Route("/with/form", form),
                Route("/with/form", buy, methods=["POST"]),
                Route("/with/hooks", payments.asgi, methods=["POST"]),
                Mount("/without", routes=without),
            ]
        )
        idempotency.install(self._shops)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        of_shop = scope["type"] == "http" and scope["path"].startswith(("/with/", "/without/"))
        await (self._shops if of_shop else self._server)(scope, receive, send)


def served() -> DemoApp:
    """The application of the process. Called by granian."""
    logs.configure("text", "error")
    return DemoApp()


def main() -> None:
    """Serve until a signal."""
    stop_with_parent(int(os.environ[PARENT]), GRACE)
    settings = ServerSettings(grace=GRACE, access_log=False)
    options = granian.ServeOptions(
        database=f"sqlite:///{WITH.absolute()}", port=int(sys.argv[1]), settings=settings
    )
    granian.serve(options, "onefold.cli.demo.shop:served")


if __name__ == "__main__":
    main()
