"""Every statement of PostgreSQL names one shard, in a way that Citus can read."""

import re

import pytest

from onefold.operations.statement import Sql
from tests.fixtures.citus import DISTRIBUTED

SQL = Sql("postgres")
MENTION = re.compile(rf"onefold\.(?:{'|'.join(DISTRIBUTED)}) as (\w+)")
# The statement's shard, or a batch's: all rows of a batch are of one shard.
NAMED = re.compile(r"(\w+)\.shard = (?::shard::smallint(?!\[)|\(:shard::smallint\[\]\)\[1\])")


def code_of(name: str) -> str:
    return re.sub(r"--[^\n]*", "", SQL(name).text)


@pytest.mark.parametrize("name", SQL.names)
def test_a_statement_names_the_shard_of_every_table_it_reads(name: str) -> None:
    """As a parameter, not by a join: only then does Citus ask one node, and lock rows there."""
    code = code_of(name)
    mentions = list(MENTION.finditer(code))
    ends = [mention.start() for mention in mentions[1:]] + [len(code)]
    for mention, end in zip(mentions, ends, strict=bool(mentions)):
        part = code[mention.start() : end]
        assert mention.group(1) in NAMED.findall(part), part


@pytest.mark.parametrize("name", SQL.names)
def test_an_update_has_the_time_from_a_function(name: str) -> None:
    """Citus would fetch what a subquery says first, and it refuses what is volatile."""
    code = code_of(name)
    if re.search(r"^update ", code, re.MULTILINE):
        assert "clock_timestamp" not in code
        assert not re.search(r"\(select coalesce\(:now", code)


def test_every_table_that_a_statement_names_is_distributed() -> None:
    named = {table for name in SQL.names for table in re.findall(r"onefold\.(\w+)", code_of(name))}

    # The identity is the installation's own, and stays on one node.
    assert named - {"meta"} == set(DISTRIBUTED)
