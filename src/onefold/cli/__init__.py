"""The command line: one file per command. Its parts are the extra `cli`.

`main` is all that may be imported without them. The status is 0 for done, 1 for what the world
refused, and 2 for what the caller has to change.
"""

from __future__ import annotations

import re
import sys
from typing import NoReturn, cast

from onefold.errors import OnefoldError, UsageError

PARTS = ("typer", "rich")

_USER = re.compile(r"([a-z][a-z0-9+.-]*://[^\s:/@]*):.*@", re.IGNORECASE)
_PARAMETER = re.compile(r"(password\s*=\s*)('[^']*'|[^\s&'\"]+)", re.IGNORECASE)


def main() -> None:
    """Run the command line; errors of ours are a sentence on stderr, never a traceback."""
    try:
        from onefold.cli.commands import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PARTS:
            raise
        _fail("The command line needs its parts: pip install 'onefold[cli]'", status=2)
    import typer

    # The base of all that is wrong with a command line. Typer has it under a private name.
    misused = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
    try:
        status = app(standalone_mode=False)
    except typer.Abort:
        _fail("Aborted.", status=1)
    except UsageError as error:
        _fail(str(error), status=2)
    except OnefoldError as error:
        _fail(str(error), status=1)
    except misused as error:
        error.message = without_passwords(error.message)
        error.show()
        sys.exit(error.exit_code)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(sentence: str, *, status: int) -> NoReturn:
    # There may be no rich.
    print(f"onefold: {without_passwords(sentence)}", file=sys.stderr)  # noqa: T201
    sys.exit(status)


def without_passwords(text: str) -> str:
    """A message that may quote what was typed, such as a URL in the wrong place."""
    return _PARAMETER.sub(r"\1***", _USER.sub(r"\1:***@", text))
