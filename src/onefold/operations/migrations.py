"""Migrations: numbered SQL files per database, each applied once.

`databases` runs them, under a lock and in one transaction.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from onefold.errors import SchemaOutdated, SchemaTooNew, ShardsDiffer
from onefold.model.ids import new_id
from onefold.operations.statement import Dialect, Statement, in_schema, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onefold.operations.statement import Operation, Sql

_COMPATIBLE: Final = re.compile(r"^-- Code of schema (\d+) runs on this one\.$", re.MULTILINE)

_INDEX: Final = re.compile(r"^create (?:unique )?index (\w+)", re.MULTILINE)
_CREATED: Final = re.compile(r"^create (?:table|function) onefold[._](\w+)", re.MULTILINE)


class Migration(msgspec.Struct, frozen=True):
    """One numbered file.

    The line `-- Code of schema 5 runs on this one.` in a file allows processes whose newest
    migration is number 5 to use the tables that the file has changed. Without it, they receive
    `SchemaTooNew`.
    """

    number: int
    name: str
    text: str

    @property
    def oldest(self) -> int:
        """The oldest schema whose code can use the tables after this migration."""
        stated = _COMPATIBLE.search(self.text)
        return int(stated.group(1)) if stated else self.number

    @property
    def digest(self) -> str:
        """A digest of the file. Until a release, a file may change after it was applied."""
        return sha256(self.text.encode()).hexdigest()


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


@lru_cache(maxsize=8)
def _digests(dialect: Dialect) -> tuple[str, ...]:
    return tuple(migration.digest for migration in _all(dialect))


def index_names(dialect: Dialect) -> frozenset[str]:
    """The indexes that the migrations create."""
    texts = (migration.text for migration in _all(dialect))
    return frozenset(name for text in texts for name in _INDEX.findall(text))


def pending(dialect: Dialect, found: int, *, schema: str = "onefold") -> list[Migration]:
    """The migrations that a database at schema `found` still needs, in order."""
    return [
        msgspec.structs.replace(migration, text=in_schema(migration.text, schema))
        for migration in _all(dialect)
        if migration.number > found
    ]


class Identity(msgspec.Struct, frozen=True):
    """The installation that a database belongs to, and its schema version."""

    installation: str
    version: int = 0
    shards: int = 1
    oldest: int = 0
    """The oldest schema whose code can use this database; 0: only that of `version`."""
    digests: tuple[str, ...] = ()
    """Those of the applied migrations, in order."""

    def migrated(self, dialect: Dialect) -> Identity:
        """The identity after all pending migrations."""
        if self.version >= latest(dialect):
            return self
        oldest = max(migration.oldest for migration in _all(dialect))
        return msgspec.structs.replace(
            self, version=latest(dialect), oldest=oldest, digests=_digests(dialect)
        )

    def refuse_other_shards(self, asked: int | None, where: str) -> None:
        """Raise if a process asks for another number of shards than the database has."""
        if asked is not None and asked != self.shards:
            raise ShardsDiffer(requested=asked, found=self.shards, where=where)


_decoder = msgspec.json.Decoder(Identity)


class StoredIdentity(NamedTuple):
    """What a PostgreSQL database says about itself."""

    text: str | None
    """The JSON of `write_identity`; None if there are no tables of ours."""
    database: str
    """The name of the database."""
    distributed: bool
    """True if the database has Citus."""


def stored_identity(sql: Sql) -> Operation[StoredIdentity]:
    """Read the identity of a PostgreSQL database, which may have no tables of ours."""
    ((has_tables, database, distributed),) = yield sql("has_identity")
    rows = (yield sql("read_identity")) if has_tables else ()
    return StoredIdentity(rows[0][0] if rows else None, database, distributed)


def drop_tables(sql: Sql) -> Operation[None]:
    """Drop the tables, with everything in them, also those of an unreleased version."""
    names = [name for each in _all(sql.dialect) for name in _CREATED.findall(each.text)]
    for (text,) in (yield sql("drop_tables", names=names)):
        yield Statement("drop_tables", text, {})


def read_identity(text: str, dialect: Dialect, where: str, *, schema: str = "onefold") -> Identity:
    """Read the JSON of `write_identity`; raises if this version cannot use the database."""
    identity = _decoder.decode(text)
    known, needed = latest(dialect), identity.oldest or identity.version
    if known < needed:
        raise SchemaTooNew(found=identity.version, needed=needed, known=known, where=where)
    applied = min(identity.version, known)
    if identity.digests[:applied] != _digests(dialect)[:applied]:
        raise SchemaOutdated(
            found=identity.version, needed=known, where=where, schema=schema, unreleased=True
        )
    return identity


def found_identity(
    text: str | None, dialect: Dialect, shards: int | None, where: str, *, schema: str = "onefold"
) -> Identity:
    """The identity of a database, or a new one if it has none."""
    if not text:
        return Identity(new_id(), shards=shards or 1)
    identity = read_identity(text, dialect, where, schema=schema)
    identity.refuse_other_shards(shards, where)
    return identity


def write_identity(identity: Identity) -> str:
    """The identity as JSON, for the table `meta`."""
    return msgspec.json.encode(identity).decode()


def script(
    dialect: Dialect,
    migrations: Sequence[Migration],
    identity: Identity,
    *,
    schema: str = "onefold",
) -> str:
    """Migrations as one text, for one transaction; also for `onefold migrate --sql`."""
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
    return "\n".join(parts)
