"""A handler did not come to its own end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.errors.root import OnefoldError

if TYPE_CHECKING:
    from datetime import timedelta


class WorkFailed(OnefoldError):
    """A handler did not come to its own end."""


class JobTimeout(WorkFailed):
    """A handler took longer than it may."""

    timeout: timedelta

    def __init__(self, timeout: timedelta) -> None:
        """`timeout` is how long it may take."""
        super().__init__(
            f"The handler took longer than {timeout.total_seconds():g} s and was told to stop. Give"
            " it more time (timeout=), or less to do.",
            timeout=timeout,
        )


class ProcessDied(WorkFailed):
    """The process that ran a handler is gone."""

    exit_code: int | None

    def __init__(self, exit_code: int | None) -> None:
        """`exit_code` is negative for a signal."""
        how = "was killed" if exit_code is None else f"ended with status {exit_code}"
        if exit_code is not None and exit_code < 0:
            how = f"was killed by signal {-exit_code}"
        super().__init__(
            f"The process that ran the handler {how}. Look for what it does in C, or for memory it"
            " runs out of.",
            exit_code=exit_code,
        )
