"""Turns: which shard a take asks first."""

import os

import pytest

from onefold.worker import deliveries
from onefold.worker.deliveries import ShardRotation


def test_each_set_of_queues_goes_round_by_itself() -> None:
    found = ShardRotation()
    mail = [found.next(["mail"])]
    bills = [found.next(["bills", "mail"])]
    for _ in range(4):
        mail.append(found.next(["mail"]))
        bills.append(found.next(["bills", "mail"]))

    assert mail == list(range(mail[0], mail[0] + 5))
    assert bills == list(range(bills[0], bills[0] + 5))


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
