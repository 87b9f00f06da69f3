"""The command line: one file per command. It needs the extra `cli`.

Only `main` can be imported without the extra. `ExitCode` has every exit status.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import NoReturn, TextIO, cast

from onefold.errors import OnefoldError, UsageError

PARTS = ("typer", "rich")


class ExitCode(IntEnum):
    """The exit statuses of all commands."""

    SUCCESS = 0
    FAILURE = 1
    """The command was not possible, a check found a problem, or the output cannot be written."""
    USAGE = 2
    """The arguments or the settings are wrong. Nothing was changed."""
    INTERRUPTED = 130
    """Ctrl-C, as shells count it: 128 and the number of the signal."""


_UNWRITABLE = frozenset({errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})
"""The errors of an output that is a file. That of a pipe ends a command quietly."""
_USER = re.compile(r"([a-z][a-z0-9+.-]*://[^\s:/@]*):.*@", re.IGNORECASE)
_PARAMETER = re.compile(r"(password\s*=\s*)('[^']*'|[^\s&'\"]+)", re.IGNORECASE)


def main() -> None:
    """Run the command line. An error of Onefold is one message on stderr, without a traceback."""
    _open_output()
    try:
        _run()
    except KeyboardInterrupt:  # while the commands are imported
        _fail("Interrupted.", ExitCode.INTERRUPTED)
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        sys.stdout = _nowhere()  # what is buffered would fail again at the exit
        _fail(f"The output cannot be written: {error.strerror}.", ExitCode.FAILURE)


def _run() -> NoReturn:
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


def _open_output() -> None:
    """Make the output accept every text, and exist: a shell can close it."""
    if sys.stdout is None:
        sys.stdout = _nowhere()
    elif reconfigure := getattr(sys.stdout, "reconfigure", None):
        reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _fail(sentence: str, status: ExitCode) -> NoReturn:
    with suppress(OSError):  # the exit code is left
        # rich may not be installed.
        print(f"onefold: {without_passwords(sentence)}", file=sys.stderr)  # noqa: T201
    sys.exit(status)


def without_passwords(text: str) -> str:
    """The text without passwords: a message may quote an argument, such as a URL."""
    return _PARAMETER.sub(r"\1***", _USER.sub(r"\1:***@", text))
