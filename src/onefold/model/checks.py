"""Checks of arguments: options, flags, lists, names, keys.

A wrong value is an `InvalidInput` that names the argument. It is raised before anything is stored,
so that no database receives a character that it cannot store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeGuard, TypeVar

from onefold.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

ATTEMPTS: Final = range(1, 101)
PRIORITIES: Final = range(-32768, 32768)

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")


def options_of(
    struct: Callable[P, object],
) -> Callable[[Callable[Concatenate[S, ...], R]], Callable[Concatenate[S, P], R]]:
    """Type a method that takes `**options`: its parameters are the fields of a struct.

    At run time the method sees only those that were given.
    """
    del struct  # for type checkers

    def decorate(method: Callable[Concatenate[S, ...], R]) -> Callable[Concatenate[S, P], R]:
        return method

    return decorate


def options(given: Mapping[str, Any], known: AbstractSet[str]) -> None:
    """Reject unknown options: a misspelled one must not be ignored."""
    for name in given:
        if name not in known:
            raise InvalidInput(
                name, f"is not an option here; the options are {', '.join(sorted(known))}"
            )


def attempts(value: object) -> int:
    """A number of attempts."""
    if type(value) is not int or value not in ATTEMPTS:
        raise InvalidInput(
            "max_attempts",
            f"must be a whole number from {ATTEMPTS[0]} to {ATTEMPTS[-1]}, got {value!r}. The first"
            " attempt counts: 1 means no retry",
        )
    return value


def flag(value: object, field: str) -> bool:
    """True or False, not a value that is only truthy."""
    if not isinstance(value, bool):
        raise InvalidInput(field, f"must be True or False, got {value!r}")
    return value


def listed(value: object, field: str, of: str) -> list[Any]:
    """The elements of a list or another iterable, but not of text or a mapping."""
    if not _is_iterable(value) or isinstance(value, str | bytes | Mapping):
        raise InvalidInput(field, f"must be a list of {of}, got {value!r}")
    return list(value)


def _is_iterable(value: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable)


NAME_LENGTH = 200
KEY_BYTES = 512
REASON_BYTES = 10_000

# Control characters, and characters that other systems read as lists or patterns.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f,*?\[\]{}\\]")
# Browsers, clients and proxies remove these from a path.
_DOTS = frozenset({".", ".."})
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_QUALIFIED = re.compile(rf"\{{(?P<tenant>{_TENANT.pattern})\}}(?P<name>.*)", re.DOTALL)
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@lru_cache(maxsize=4096)
def _checked(value: str, field: str) -> str:
    if not 1 <= len(value) <= NAME_LENGTH:
        raise InvalidInput(field, f"must have 1 to {NAME_LENGTH} characters, got {len(value)}")
    if found := _FORBIDDEN.search(value):
        raise InvalidInput(field, f"must not contain {found.group()!r}, got {value!r}")
    if _SURROGATE.search(value):
        raise InvalidInput(field, f"must be valid Unicode, got {value!r}")
    if value in _DOTS:
        raise InvalidInput(field, f"must not be {value!r}, which is lost on its way in a URL")
    return value


def name(value: object, field: str) -> str:
    """The name of a kind, schedule or surface; a queue as users name it."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be a string, got {value!r}")
    return _checked(value, field)


def tenant(value: object, field: str) -> str:
    """A tenant of the server: its name can be part of a queue's name."""
    if not isinstance(value, str) or not _TENANT.fullmatch(value):
        raise InvalidInput(
            field,
            "must be 1 to 64 lower-case letters, digits, dots, dashes and underscores, the first"
            f" of them a letter or a digit, got {value!r}",
        )
    return value


def queue(value: object, field: str) -> str:
    """A stored queue name: a plain name, or a tenant's queue on the server, `{acme}payments`."""
    if isinstance(value, str) and (found := _QUALIFIED.fullmatch(value)):
        _checked(found["name"], field)
        return value
    return name(value, field)


def parted(queue: str) -> tuple[str, str]:
    """The tenant and the name of a stored queue name."""
    found = _QUALIFIED.fullmatch(queue)
    return ("", queue) if found is None else (found["tenant"], found["name"])


def key(value: object, field: str, *, longest: int = KEY_BYTES) -> str:
    """A key: any text without NUL, at most `longest` bytes of UTF-8, not empty."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be a string, got {value!r}")
    if not value:
        raise InvalidInput(field, "must not be empty")
    if value.isascii() and len(value) <= longest and "\x00" not in value:
        return value  # for speed: most keys end here
    return text(value, field, longest=longest)


def text(value: object, field: str, *, longest: int = KEY_BYTES) -> str:
    """Text that may be empty (a tenant, a scope): no NUL, valid Unicode, bounded."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be a string, got {value!r}")
    if "\x00" in value:
        raise InvalidInput(field, f"must not contain NUL, got {value!r}")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(field, f"must be valid Unicode, got {value!r}") from error
    if size > longest:
        raise InvalidInput(field, f"must have at most {longest} bytes, got {size}")
    return value


def schema(value: object, field: str) -> str:
    """The name of a PostgreSQL schema that needs no quotes."""
    if not isinstance(value, str) or not _SCHEMA.fullmatch(value):
        raise InvalidInput(
            field, f"must be lower-case letters, digits and underscores, got {value!r}"
        )
    if value.startswith("pg_"):
        raise InvalidInput(field, f"must not begin with pg_, which is PostgreSQL's, got {value!r}")
    return value


def qualified(owner: str, queue: str) -> str:
    """The name of a tenant's queue in the database: `{acme}payments`."""
    plain = name(queue, "queue")
    return f"{{{tenant(owner, 'tenant')}}}{plain}" if owner else plain


def shown(owner: str, queue: str) -> str:
    """The name that a tenant has for a queue: the opposite of `qualified`."""
    return queue.removeprefix(f"{{{owner}}}") if owner else queue


def without_tenant(queue: str) -> str:
    """The name of a queue without its tenant, of any tenant."""
    return queue.partition("}")[2] if queue.startswith("{") else queue
