"""A schema with the function, and connections to it."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from onefold import Onefold
from tests.fixtures.postgres import drop_schema


@pytest.fixture(scope="module")
def schema(postgres_url: str) -> Iterator[str]:
    """A migrated schema with three shards, for one file of tests."""
    name = f"from_sql_{uuid4().hex}"
    with Onefold(postgres_url, schema=name, shards=3) as onefold:
        onefold.migrate()
    yield name
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        drop_schema(connection, name)


@pytest.fixture
def onefold(postgres_url: str, schema: str) -> Iterator[Onefold]:
    """The library on the same schema, without the jobs of the last test."""
    with Onefold(postgres_url, schema=schema) as found:
        found.keys.erase(tenant="")
        yield found


@pytest.fixture
def connection(postgres_url: str, schema: str) -> Iterator[psycopg.Connection[Any]]:
    """A caller that has the schema on its search path, as the page advises."""
    with psycopg.connect(postgres_url, autocommit=True) as found:
        path = sql.SQL("set search_path to public, {}").format(sql.Identifier(schema))
        found.execute(path)
        yield found
