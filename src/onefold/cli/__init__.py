"""The command line: one file per command. It needs the extra `cli`.

Only `main` can be imported without the extra. The exit status is 0 for success, 2 for wrong
arguments, and 1 for any other error.
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
    """Run the command line. An error of Onefold is one message on stderr, without a traceback."""
    try:
        from onefold.cli.commands import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PARTS:
            raise
        _fail("The command line needs the extra cli: pip install 'onefold[cli]'", status=2)
    import typer

    # The base class of all errors in arguments. Typer has it only under a private name.
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
    # rich may not be installed.
    print(f"onefold: {without_passwords(sentence)}", file=sys.stderr)  # noqa: T201
    sys.exit(status)


def without_passwords(text: str) -> str:
    """The text without passwords: a message may quote an argument, such as a URL."""
    return _PARAMETER.sub(r"\1***", _USER.sub(r"\1:***@", text))
