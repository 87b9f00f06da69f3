"""Optional parts: where one is missing, the error names what to install."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class Needs:
    """`with Needs("onefold[flask]"): import flask` names it where the import fails."""

    def __init__(self, package: str) -> None:
        """`package` is what `pip install` takes."""
        self._package = package

    def __enter__(self) -> None:
        """The imports follow."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """A missing module is an `ImportError` that says what to do."""
        if isinstance(error, ModuleNotFoundError):
            message = f"{error.name} is not installed. Install it: pip install '{self._package}'"
            raise ImportError(message, name=error.name) from error  # noqa: TRY004 - not a wrong type
