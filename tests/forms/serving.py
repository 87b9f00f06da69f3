"""A real server on loopback, in a thread of the test."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tests.http.apps_talk import served


@contextmanager
def serving(app: Any) -> Generator[str]:
    """The URL of an application while it is served."""
    with served(app) as (host, port):
        yield f"http://{host}:{port}"
