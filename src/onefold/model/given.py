"""What callers hand over, checked for its shape: options, flags and lists.

Types say the same, but not to everybody: a slip is an `InvalidInput` that names the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from onefold.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


def options(given: Mapping[str, Any], known: AbstractSet[str]) -> None:
    """Refuse options that do not exist: one that is misspelled must not be left out silently."""
    for name in given:
        if name not in known:
            raise InvalidInput(name, f"is no option here; there are {', '.join(sorted(known))}")


def flag(value: object, field: str) -> bool:
    """True or False, and nothing that is merely taken for one."""
    if not isinstance(value, bool):
        raise InvalidInput(field, f"must be True or False, got {value!r}")
    return value


def listed(value: object, field: str, of: str) -> list[Any]:
    """The elements of a list or of anything else that gives elements, save text and mappings."""
    if not _is_iterable(value) or isinstance(value, str | bytes | Mapping):
        raise InvalidInput(field, f"must be a list of {of}, got {value!r}")
    return list(value)


def _is_iterable(value: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable)
