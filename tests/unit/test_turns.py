"""Turns: which shard a take asks first."""

import os

import pytest

from onefold.worker import deliveries
from onefold.worker.deliveries import ShardRotation


def test_queues_that_nobody_asks_for_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "REMEMBERED", 3)
    found = ShardRotation()
    for number in range(10):
        found.next([f"queue {number}"])

    assert len(found._turns) <= 3


def test_a_forked_child_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ShardRotation()
    found.next(["mail"])
    here = found._turns[("mail",)]

    monkeypatch.setattr(os, "getpid", lambda: -1)
    found.next(["mail"])

    assert found._turns[("mail",)] is not here
