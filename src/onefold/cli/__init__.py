"""The command line: one file per command. Its parts are the extra `cli`.

`main` is all that may be imported without them. The status is 0 for done, 1 for what the world
refused, and 2 for what the caller has to change.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from onefold.errors import OnefoldError, UsageError

PARTS = ("typer", "rich")


def main() -> None:
    """Run the command line; errors of ours are a sentence on stderr, never a traceback."""
    try:
        from onefold.cli.commands import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PARTS:
            raise
        _fail("The command line needs its parts: pip install 'onefold[cli]'", status=2)
    try:
        app()
    except UsageError as error:
        _fail(str(error), status=2)
    except OnefoldError as error:
        _fail(str(error), status=1)


def _fail(sentence: str, *, status: int) -> NoReturn:
    print(f"onefold: {sentence}", file=sys.stderr)  # noqa: T201 - there may be no rich
    sys.exit(status)
