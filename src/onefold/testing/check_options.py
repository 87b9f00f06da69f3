"""The options of `assert_idempotent`, and their checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

from onefold.app.onefold import Tenant
from onefold.errors import InvalidInput
from onefold.model import checks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class CheckOptions(TypedDict, total=False):
    """The options of `assert_idempotent`."""

    given: Callable[[], Any] | None
    """Called before each scenario, after the rows were put back: resets doubles, adds rows."""
    onefold: Tenant | None
    """The Onefold of a route or a function. A job knows its own."""
    database: str | None
    """The URL of the database whose tables are compared; by default that of `onefold`."""
    connect: Callable[[], Any] | None
    """Opens the connection of a function; by default sqlite3 or psycopg."""
    ignore: Iterable[str]
    """Columns that are not compared: `updated_at`, or `orders.updated_at`."""
    recorders: Sequence[list[Any]]
    """Lists of test doubles. What is appended counts as an effect."""
    followed_by: Sequence[Any]
    """Requests, or arguments of the function, that follow: a duplicate may come after them."""
    max_crash_points: int
    """By default 200; of more, so many are chosen at random."""
    seed: int
    """Of the random choice."""


def check_options(options: CheckOptions) -> None:
    """Refuse what is no value of an option."""
    checks.options(options, CheckOptions.__optional_keys__)
    for name, value in options.items():
        is_valid, valid = _VALID[name]
        if not is_valid(value):
            raise InvalidInput(name, f"must be {valid}, got {value!r}")


def _is_list(value: Any, of: type) -> bool:
    is_list = type(value) in {list, tuple, set, frozenset}
    return is_list and all(isinstance(each, of) for each in value)


_VALID: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "given": (lambda v: v is None or callable(v), "a function without parameters"),
    "onefold": (lambda v: v is None or isinstance(v, Tenant), "an Onefold or a tenant"),
    "database": (
        lambda v: v is None or str(v).startswith(("sqlite:", "postgres:", "postgresql:")),
        "a URL of SQLite or PostgreSQL",
    ),
    "connect": (lambda v: v is None or callable(v), "a function that opens a connection"),
    "ignore": (lambda v: _is_list(v, str), "a list of columns"),
    "recorders": (lambda v: _is_list(v, list), "a list of lists"),
    "followed_by": (lambda v: isinstance(v, list | tuple), "a list of calls or requests"),
    "max_crash_points": (lambda v: type(v) is int and v > 0, "a whole number from 1"),
    "seed": (lambda v: type(v) is int, "a whole number"),
}
