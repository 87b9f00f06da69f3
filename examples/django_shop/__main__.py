"""`python -m examples.django_shop`: the shop on loopback, and its worker in a second process."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys

import django
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from waitress.server import create_server

SETTINGS = "examples.django_shop.settings"
THREADS = 16
"""A double click waits for the first response in its own thread."""


def main() -> None:
    """Migrate, and serve until a signal."""
    parser = argparse.ArgumentParser(prog="python -m examples.django_shop", description=__doc__)
    parser.add_argument("--database", help="sqlite:///… or postgresql://…")
    parser.add_argument("--port", type=int, default=8000, help="0 chooses a free port")
    given = parser.parse_args()
    if given.database is not None:
        os.environ["SHOP_DATABASE"] = given.database
    os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
    django.setup()
    call_command("migrate", verbosity=0)
    listener = socket.create_server(("127.0.0.1", given.port))
    print(f"The shop is at http://127.0.0.1:{listener.getsockname()[1]}/orders", flush=True)
    serve(listener)


def serve(listener: socket.socket) -> None:
    """Serve until a signal. Only this process stops the worker: a second signal would abort it."""
    signal.signal(signal.SIGTERM, stop)
    command = [sys.executable, "-m", "django", "onefold_worker"]
    with subprocess.Popen(command, process_group=0) as worker:  # noqa: S603 - our own
        try:
            create_server(get_wsgi_application(), sockets=[listener], threads=THREADS).run()
        finally:
            worker.terminate()


def stop(number: int, frame: object) -> None:
    """Stop like Ctrl-C, once: make repeats a signal that the whole process group receives."""
    del frame
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
