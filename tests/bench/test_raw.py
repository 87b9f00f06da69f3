"""Raw SQL does what Onefold does: a row of the same columns."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from bench import sqlite_stage
from bench.contestants import http_raw, raw_postgres


def columns(statement: str) -> set[str]:
    """The columns that a statement of Onefold's own inserts."""
    text = (files("onefold.sql") / f"{statement}.sql").read_text()
    found = re.search(r"insert into [\w.]+ \(([^)]*)\)", text)
    assert found is not None
    return {name.strip() for name in found[1].split(",")}


@pytest.mark.parametrize(
    ("statement", "ours"),
    [
        ("postgres/store_jobs", raw_postgres.MANY),
        ("postgres/insert_job", raw_postgres.ONE),
        ("sqlite/insert_job", sqlite_stage.COLUMNS),
        ("postgres/insert_claims", http_raw.COLUMNS),
        ("sqlite/insert_claims", http_raw.COLUMNS),
    ],
)
def test_the_columns_are_those_of_onefolds_own_insert(
    statement: str, ours: dict[str, str] | tuple[str, ...]
) -> None:
    assert set(ours) == columns(statement)
