"""What every test may ask for. Fixtures that need room live in `fixtures/`, by concern."""

import signal
from pathlib import Path

import pytest

pytest_plugins = [
    "tests.fixtures.migrated",
    "tests.fixtures.not_run",
    "tests.fixtures.postgres",
    "tests.fixtures.proof",
]


def pytest_configure() -> None:
    """Heed SIGINT and SIGQUIT, also where nohup or a script has begun the run without them.

    Children inherit that a signal is ignored, and many tests interrupt or quit a child.
    """
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'onefold.db'}"
