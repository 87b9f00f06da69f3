"""How long a transaction goes on trying, alone or together with others'."""

from datetime import timedelta

import pytest

from onefold import DatabaseBusy
from onefold.databases.batching import KeyHeld
from onefold.databases.postgres.transaction import Effort
from onefold.operations.unique_keys import Restart

HOUR = timedelta(hours=1)


def busy(waited: timedelta) -> DatabaseBusy:
    return DatabaseBusy("somebody has it.", waited=waited)


def test_a_crowd_whose_keys_keep_changing_hands_is_parted_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onefold.databases.postgres.transaction.IMPATIENCE", timedelta(0))

    with pytest.raises(KeyHeld):
        Effort("db", HOUR, busy, patient=False).pause(Restart())


@pytest.mark.parametrize("patient", [True, False])
def test_a_key_that_changed_hands_is_asked_for_again(*, patient: bool) -> None:
    effort = Effort("db", HOUR, busy, patient=patient)

    assert effort.pause(Restart()) < 1
    assert effort.resends


def test_whoever_has_asked_for_long_enough_is_told_that_it_is_busy() -> None:
    with pytest.raises(DatabaseBusy, match="changing hands"):
        Effort("db", timedelta(0), busy, patient=True).pause(Restart())
