"""Migrations: numbered SQL files per database, each applied once.

What runs them (under a lock, in one transaction) is the business of `databases`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

import msgspec

from onefold.errors import SchemaTooNew, ShardsDiffer
from onefold.model.identity import new_id
from onefold.operations.statement import Dialect, in_schema, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence


_COMPATIBLE: Final = re.compile(r"^-- Code of schema (\d+) runs on this one\.$", re.MULTILINE)


class Migration(msgspec.Struct, frozen=True):
    """One numbered file.

    A file with the line `-- Code of schema 5 runs on this one.` lets processes of an older version
    go on. Without it, only code that knows the migration runs on what it has changed.
    """

    number: int
    name: str
    text: str

    @property
    def oldest(self) -> int:
        """The oldest schema whose code runs on what this migration has changed."""
        stated = _COMPATIBLE.search(self.text)
        return int(stated.group(1)) if stated else self.number


@lru_cache(maxsize=8)
def _all(dialect: Dialect) -> tuple[Migration, ...]:
    folder = files("onefold.sql").joinpath(dialect).joinpath("migrations")
    found = [
        Migration(int(match.group(1)), match.group(2), entry.read_text())
        for entry in folder.iterdir()
        if (match := re.fullmatch(r"(\d{4})_(\w+)\.sql", entry.name))
    ]
    return tuple(sorted(found, key=lambda migration: migration.number))


def latest(dialect: Dialect) -> int:
    """The schema that this version needs."""
    return _all(dialect)[-1].number


def pending(dialect: Dialect, found: int, *, schema: str = "onefold") -> list[Migration]:
    """What a database at schema `found` still needs, in order."""
    return [
        msgspec.structs.replace(migration, text=in_schema(migration.text, schema))
        for migration in _all(dialect)
        if migration.number > found
    ]


class Identity(msgspec.Struct, frozen=True):
    """Which installation a database is, and how far it has been migrated."""

    installation: str
    version: int = 0
    shards: int = 1
    oldest: int = 0
    """The oldest schema whose code runs on this one; where it is not stated, no older one does."""

    def migrated(self, dialect: Dialect) -> Identity:
        """The identity after everything that is pending has been applied."""
        if self.version >= latest(dialect):
            return self
        oldest = max(migration.oldest for migration in _all(dialect))
        return msgspec.structs.replace(self, version=latest(dialect), oldest=oldest)

    def refuse_other_shards(self, asked: int | None, where: str) -> None:
        """Raise where a process asks for another number of shards than the database has."""
        if asked is not None and asked != self.shards:
            raise ShardsDiffer(asked=asked, found=self.shards, where=where)


_decoder = msgspec.json.Decoder(Identity)


def read_identity(text: str, dialect: Dialect, where: str) -> Identity:
    """From the JSON that `write_identity` gave; raises where this version cannot run on it."""
    identity = _decoder.decode(text)
    known, needed = latest(dialect), identity.oldest or identity.version
    if known < needed:
        raise SchemaTooNew(found=identity.version, needed=needed, known=known, where=where)
    return identity


def found_identity(text: str | None, dialect: Dialect, shards: int | None, where: str) -> Identity:
    """What a database says it is, or what a new one will be."""
    if not text:
        return Identity(new_id(), shards=shards or 1)
    identity = read_identity(text, dialect, where)
    identity.refuse_other_shards(shards, where)
    return identity


def write_identity(identity: Identity) -> str:
    """As JSON: a row of `meta`, and on PostgreSQL the comment of that table."""
    return msgspec.json.encode(identity).decode()


def script(
    dialect: Dialect,
    migrations: Sequence[Migration],
    identity: Identity,
    *,
    schema: str = "onefold",
) -> str:
    """Migrations as one text, to be run in one transaction: by us, or by people (`--sql`)."""
    prefix = f"{quoted(schema)}." if dialect == "postgres" else "onefold_"
    value = "'" + write_identity(identity).replace("'", "''") + "'"
    parts = [
        f"{migration.text}\ninsert into {prefix}migration (number, name)"
        f" values ({migration.number}, '{migration.name}');\n"
        for migration in migrations
    ]
    parts.append(
        f"insert into {prefix}meta (name, value) values ('identity', {value})\n"  # noqa: S608 - ours
        "    on conflict (name) do update set value = excluded.value;\n"
    )
    if dialect == "postgres":
        parts.append(f"comment on table {prefix}meta is {value};\n")
    return "\n".join(parts)
