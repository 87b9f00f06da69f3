"""What a stored claim means for an attempt that wants its key, in the order that matters."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onefold import ConflictingOptions, InvalidInput
from onefold.claims import Busy, Mismatch, Replay, Unknown
from onefold.model.claim import (
    RESULT_BYTES,
    ClaimKey,
    Guarantee,
    Holding,
    StoredClaim,
    TakeOver,
    Takeover,
    Wanted,
    decide,
    encode_result,
    refuse_leased_within,
    want,
)

NOW = 1_772_366_400_000_000
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = 1_000_000
RERUN, RESUME = 0, 1
THEIRS = {"fingerprint": "theirs", "result": '{"a":1}'}
KEY = ClaimKey("acme", "once", "import", "k")
HELD = StoredClaim(
    id="claim-1",
    owner="owner-1",
    state=Holding.HELD,
    fence=7,
    fingerprint=None,
    takeover=2,
    lease_until=None,
    expires_at=None,
    result=None,
    now=NOW,
)


@pytest.mark.parametrize(
    ("row", "fingerprint", "answer"),
    [
        # Expired or free counts as absent, whatever else it says.
        ({"state": Holding.SETTLED, "expires_at": NOW, **THEIRS}, "mine", (True, "me")),
        ({"state": Holding.FREE, "expires_at": NOW + SECOND, **THEIRS}, "mine", (True, "me")),
        # Another request is told so before it is replayed, or told to wait, or takes over.
        ({"state": Holding.SETTLED, **THEIRS}, "mine", Mismatch("k", "theirs")),
        ({"lease_until": NOW + SECOND, **THEIRS}, "mine", Mismatch("k", "theirs")),
        (
            {"lease_until": NOW - SECOND, "takeover": RERUN, **THEIRS},
            "mine",
            Mismatch("k", "theirs"),
        ),
        # Fingerprints are compared only where both have one.
        ({"state": Holding.SETTLED, **THEIRS}, "theirs", Replay({"a": 1}, "claim-1")),
        ({"state": Holding.SETTLED, **THEIRS}, None, Replay({"a": 1}, "claim-1")),
        ({"state": Holding.SETTLED, "result": '{"a":1}'}, "mine", Replay({"a": 1}, "claim-1")),
        # The stored takeover decides, and not the newcomer's.
        ({"lease_until": NOW - SECOND, "takeover": RERUN}, None, (True, "me")),
        ({"lease_until": NOW - SECOND, "takeover": RESUME}, None, (False, "claim-1")),
        ({"lease_until": NOW - SECOND}, None, Unknown("k", 7, AT - timedelta(seconds=1))),
        # Joined claims have no lease; only a broken restore could leave one held and committed.
        ({}, None, Unknown("k", 7, None)),
    ],
)
@pytest.mark.parametrize("takeover", ["rerun", "resume", "refuse"])
def test_a_stored_claim_decides(
    row: dict[str, Any], fingerprint: str | None, answer: object, takeover: Takeover
) -> None:
    wanted = Wanted(key=KEY, id="me", lease=SECOND, takeover=takeover, fingerprint=fingerprint)

    decided = decide(msgspec.structs.replace(HELD, **row), wanted)

    assert ((decided.fresh, decided.id) if isinstance(decided, TakeOver) else decided) == answer


def test_a_key_at_work_is_busy_until_its_lease_ends() -> None:
    held = msgspec.structs.replace(HELD, lease_until=NOW + SECOND)

    busy = decide(held, want(KEY, lease=timedelta(seconds=5)))

    assert isinstance(busy, Busy)
    assert (busy.evidence["key"], busy.retry_after) == ("k", timedelta(seconds=1))
    begun = msgspec.structs.replace(held, created_at=NOW - 3 * SECOND)
    assert begun.running == timedelta(seconds=3)
    assert held.running == timedelta(0), "where nothing says when it began"


@pytest.mark.parametrize(
    ("lease", "takeover", "guarantee"),
    [
        (None, "rerun", "exactly once"),
        (None, "refuse", "exactly once"),
        (timedelta(seconds=1), "refuse", "at most once"),
        (timedelta(seconds=1), "rerun", "at least once"),
        (timedelta(seconds=1), "resume", "at least once"),
    ],
)
def test_the_settings_say_which_guarantee_they_give(
    lease: timedelta | None, takeover: Takeover, guarantee: Guarantee
) -> None:
    attempt = want(KEY, lease=lease, takeover=takeover)

    assert attempt.guarantee == guarantee
    assert attempt.joined == (lease is None)


def test_inside_a_callers_transaction_a_lease_means_nothing() -> None:
    refuse_leased_within(lease=None, takeover=None)
    with pytest.raises(ConflictingOptions, match=r"takeover is for leased claims; inside within"):
        refuse_leased_within(lease=None, takeover="rerun")


def test_a_result_has_a_limit() -> None:
    with pytest.raises(InvalidInput, match="result must have at most 1048576 bytes, got 1048577"):
        encode_result("x" * (RESULT_BYTES - 1))
