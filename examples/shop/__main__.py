"""`python -m examples.shop`: the shop on loopback, with its worker inside."""

from __future__ import annotations

import argparse
import logging
import socket

import uvicorn

from examples.shop.app import create_app
from examples.shop.settings import Settings


def main() -> None:
    """Serve until it is stopped."""
    parser = argparse.ArgumentParser(prog="python -m examples.shop", description=__doc__)
    parser.add_argument(
        "--database", default=Settings.database, help="sqlite:///… or postgresql://…"
    )
    parser.add_argument("--port", type=int, default=8000, help="0 chooses a free port")
    given = parser.parse_args()
    # The guarantees of the routes are logged at the start.
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    app = create_app(Settings(database=given.database))
    listener = socket.create_server(("127.0.0.1", given.port))
    print(f"The shop is at http://127.0.0.1:{listener.getsockname()[1]}/orders", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
