"""Keys, new and known, and keyed requests: every contestant is played to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.duplicate_plan import DUPLICATES
from bench.http_plan import HTTP
from bench.play import play
from bench.usage import PROC
from bench.values import Contestant, Measurement, Order

if TYPE_CHECKING:
    from pathlib import Path

JOBS = 20
EACH = [
    pytest.param(each, contestant, id=f"{each.name}: {contestant.name}")
    for each in (*DUPLICATES, *(each for each in HTTP if each.database == "sqlite"))
    for contestant in each.contestants
]


@pytest.mark.parametrize("server_url", ["tcp"], indirect=True)
@pytest.mark.parametrize(("measurement", "contestant"), EACH)
def test_a_contestant_plays_to_its_end(
    measurement: Measurement,
    contestant: Contestant,
    tmp_path: Path,
    server_url: str,
) -> None:
    on_postgres = measurement.database == "postgres"
    url = f"sqlite:///{tmp_path / 'bench.db'}"
    if on_postgres:
        url = server_url
    options = {**measurement.options, **contestant.options}

    lap = play(Order(contestant.plays, url, JOBS, options))

    assert lap.jobs == JOBS
    assert lap.cpu_seconds > 0
    assert ((lap.server_seconds or 0) > 0) == (on_postgres and PROC.exists())
    assert (lap.wal_bytes is not None) == (on_postgres and PROC.exists())
