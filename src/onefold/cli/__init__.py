"""The command line: one file per command. It needs the extra `cli`.

Only `main` can be imported without the extra. `ExitCode` has every exit status.
"""

from __future__ import annotations

import re
import sys
from enum import IntEnum
from typing import NoReturn, cast

from onefold.errors import OnefoldError, UsageError

PARTS = ("typer", "rich")


class ExitCode(IntEnum):
    """The exit statuses of all commands."""

    SUCCESS = 0
    FAILURE = 1
    """The command was not possible, a check found a problem, or the reader of the output ended."""
    USAGE = 2
    """The arguments or the settings are wrong. Nothing was changed."""
    INTERRUPTED = 130
    """Ctrl-C, as shells count it: 128 and the number of the signal."""


_USER = re.compile(r"([a-z][a-z0-9+.-]*://[^\s:/@]*):.*@", re.IGNORECASE)
_PARAMETER = re.compile(r"(password\s*=\s*)('[^']*'|[^\s&'\"]+)", re.IGNORECASE)


def main() -> None:
    """Run the command line. An error of Onefold is one message on stderr, without a traceback."""
    try:
        from onefold.cli.commands import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PARTS:
            raise
        _fail("The command line needs the extra cli: pip install 'onefold[cli]'", ExitCode.USAGE)
    import typer

    # The base class of all errors in arguments. Typer has it only under a private name.
    misused = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
    try:
        status = app(standalone_mode=False)
    except typer.Abort:
        _fail("Interrupted.", ExitCode.INTERRUPTED)
    except UsageError as error:
        _fail(str(error), ExitCode.USAGE)
    except OnefoldError as error:
        _fail(str(error), ExitCode.FAILURE)
    except misused as error:
        error.message = without_passwords(error.message)
        error.show()
        sys.exit(error.exit_code)
    sys.exit(status if isinstance(status, int) else ExitCode.SUCCESS)


def _fail(sentence: str, status: ExitCode) -> NoReturn:
    # rich may not be installed.
    print(f"onefold: {without_passwords(sentence)}", file=sys.stderr)  # noqa: T201
    sys.exit(status)


def without_passwords(text: str) -> str:
    """The text without passwords: a message may quote an argument, such as a URL."""
    return _PARAMETER.sub(r"\1***", _USER.sub(r"\1:***@", text))
