"""API keys: which callers may do what on the server. Pure.

    of_k3v6w2qz5x7n4m2a_9fJ…

The id in the middle finds the key, and the secret after it proves it. Only a digest of the secret
is stored. The secret is shown once, when the key is created.
"""

from __future__ import annotations

import re
import secrets
import string
from base64 import b32encode
from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec

from onefold.errors import InvalidInput
from onefold.model import checks
from onefold.model.limit import Rate, stored_rate
from onefold.model.timestamps import from_micros

if TYPE_CHECKING:
    from collections.abc import Sequence

Scope: TypeAlias = Literal["read", "publish", "work", "admin"]

SCOPES: Final[tuple[Scope, ...]] = ("read", "publish", "work", "admin")

NAME_BYTES: Final = 200

_ALPHABET: Final = string.digits + string.ascii_letters
_SECRET_LENGTH: Final = 43
"""Letters and digits: 256 bits."""
_ID_BYTES: Final = 10
_TEXT: Final = re.compile(r"of_(?P<id>[a-z2-7]{16})_(?P<secret>[0-9A-Za-z]{43})")
_ID: Final = re.compile(r"(?:of_)?(?P<id>[a-z2-7]{16})(?:_[0-9A-Za-z]{43})?")
_NOBODYS: Final = "0" * 64
"""A digest that no secret has: an unknown key is compared with it."""


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, without its secret."""

    id: str
    tenant: str
    """The tenant whose jobs and keys it may use; "" for the default one."""
    name: str
    """Its name, for people."""
    scopes: tuple[Scope, ...]
    rate: Rate | None
    """How many requests per time it may make; None: no limit."""
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewApiKey(msgspec.Struct, frozen=True):
    """A new key. Its text is shown here and never again."""

    key: ApiKey
    text: str
    """The text to send: `Authorization: Bearer of_…`."""

    def __repr__(self) -> str:
        """Without the secret: printed values are often logged."""
        return f"NewApiKey(key={self.key!r}, text='of_{self.key.id}_…')"


class Admission(msgspec.Struct, frozen=True):
    """The result of checking a key."""

    key: ApiKey | None
    """None: not valid. The reason (unknown, wrong, revoked, expired) is not revealed."""
    wait: timedelta = timedelta(0)
    """Above zero: valid, but its rate is used up for this time."""


class Shown(msgspec.Struct, frozen=True):
    """A key as presented: its id, and a digest of its secret."""

    id: str
    digest: str


class StoredApiKey(msgspec.Struct, frozen=True):
    """A stored key."""

    key: ApiKey
    digest: str
    live: bool
    """Neither revoked nor expired, by the clock of the database."""


def new_key() -> tuple[str, Shown]:
    """A new key's text, and what is stored of it."""
    key_id = b32encode(secrets.token_bytes(_ID_BYTES)).decode().lower()
    secret = "".join(secrets.choice(_ALPHABET) for _ in range(_SECRET_LENGTH))
    return f"of_{key_id}_{secret}", Shown(key_id, _digest(secret))


def read_text(text: str) -> Shown | None:
    """Parse the text of a key; None if it is not one of ours."""
    found = _TEXT.fullmatch(text)
    return None if found is None else Shown(found["id"], _digest(found["secret"]))


def _digest(secret: str) -> str:
    # 256 random bits cannot be guessed, so a slow digest would not add protection.
    return sha256(secret.encode()).hexdigest()


def proven(shown: Shown, known: StoredApiKey | None) -> ApiKey | None:
    """The key, if the secret matches and it is valid. An unknown key costs the same comparison."""
    is_it = compare_digest(shown.digest, _NOBODYS if known is None else known.digest)
    return known.key if known is not None and is_it and known.live else None


def known_from_row(row: Sequence[Any]) -> StoredApiKey:
    """A row of read_api_keys."""
    *columns, digest, now = row
    _, _, _, _, _, _, _, expires_at, revoked_at = columns
    live = revoked_at is None and (expires_at is None or expires_at > now)
    return StoredApiKey(from_row(columns), digest, live)


def from_row(row: Sequence[Any]) -> ApiKey:
    """A row of find_api_keys."""
    key_id, tenant, name, scopes, count, period, created_at, expires_at, revoked_at = row
    return ApiKey(
        id=key_id,
        tenant=tenant,
        name=name,
        scopes=tuple(scope for scope in SCOPES if scope in scopes.split()),
        rate=stored_rate(count, period),
        created_at=from_micros(created_at),
        expires_at=None if expires_at is None else from_micros(expires_at),
        revoked_at=None if revoked_at is None else from_micros(revoked_at),
    )


def key_id(value: object) -> str:
    """The id of a key, from its id or from its whole text."""
    found = _ID.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidInput("id", "must be the id of an API key, as `onefold apikeys list` shows it")
    return found["id"]


def key_tenant(value: object) -> str:
    """The tenant of a key: part of names, so its characters are limited; "" is the default one."""
    return "" if value == "" else checks.tenant(value, "tenant")


def key_name(value: object) -> str:
    """The name of a key."""
    return checks.text(value, "name", longest=NAME_BYTES)


def key_scopes(value: object) -> tuple[Scope, ...]:
    """The scopes of a key: at least one."""
    given: list[object] = [value]
    if isinstance(value, Iterable) and not isinstance(value, str):
        given = list(cast("Iterable[object]", value))
    if not given or any(scope not in SCOPES for scope in given):
        raise InvalidInput("scopes", f"must be some of {', '.join(SCOPES)}, got {value!r}")
    return tuple(scope for scope in SCOPES if scope in given)
