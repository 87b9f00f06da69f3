"""What a library answers to a statement of ours, and a cursor made of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from onefold.operations.statement import Rows

Parameters: TypeAlias = Mapping[str, Any] | tuple[Any, ...]


class Answer(NamedTuple):
    """The rows of a statement, and how many it has changed."""

    rows: Rows
    changed: int


RunText: TypeAlias = Callable[[str, Parameters], Answer]
"""Runs a text that is the driver's, the library's way."""


class LibraryCursor:
    """As much of a sqlite3 connection and its cursor as statements of ours need."""

    row_factory: object = None

    def __init__(self, run_text: RunText) -> None:
        """`run_text` is how the library runs a statement."""
        self._run_text = run_text
        self._answer = Answer((), -1)

    def cursor(self) -> LibraryCursor:
        """A cursor for the next statement."""
        return LibraryCursor(self._run_text)

    def execute(self, text: str, parameters: Parameters = ()) -> LibraryCursor:
        """Run a statement to its end."""
        self._answer = self._run_text(text, parameters)
        return self

    def fetchall(self) -> Rows:
        """All rows."""
        return self._answer.rows

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        return self._answer.changed
