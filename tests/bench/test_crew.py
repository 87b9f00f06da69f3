"""What was asked of a worker's database."""

from __future__ import annotations

from bench.stage import statements

LOG = """\
2026-01-01 10:00:00.000 UTC [10] bench_take_empty LOG:  statement: BEGIN
2026-01-01 10:00:00.000 UTC [10] bench_take_empty LOG:  execute <unnamed>: with picked as (
\tselect 1
)
2026-01-01 10:00:00.000 UTC [10] bench_take_empty DETAIL:  Parameters: $1 = '1'
2026-01-01 10:00:00.000 UTC [11] bench_take_empty_too LOG:  statement: select 1
2026-01-01 10:00:00.000 UTC [12]  LOG:  checkpoint starting: time
2026-01-01 10:00:00.000 UTC [10] bench_take_empty LOG:  statement: COMMIT
"""


def test_statements_are_counted_by_database_whatever_their_protocol() -> None:
    url = "postgresql://postgres@/bench_take_empty?host=/tmp"

    assert statements(LOG, url) == 3
