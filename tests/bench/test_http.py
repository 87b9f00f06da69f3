"""Keyed requests, ours and by hand: both are played to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.http_plan import HTTP
from bench.play import play
from bench.values import Contestant, Order

if TYPE_CHECKING:
    from pathlib import Path

JOBS = 20
ON_SQLITE = [
    pytest.param(contestant, id=f"{each.name}: {contestant.name}")
    for each in HTTP
    if each.database == "sqlite"
    for contestant in each.contestants
]


@pytest.mark.parametrize("contestant", ON_SQLITE)
def test_a_contestant_plays_to_its_end(contestant: Contestant, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bench.db'}"

    lap = play(Order(contestant.plays, url, JOBS, contestant.options))

    assert lap.jobs == JOBS
