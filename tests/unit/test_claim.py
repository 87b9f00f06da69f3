"""Claims as values. What a stored claim means for an attempt is proved in `tests/model`."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from onefold import ConflictingOptions, InvalidInput
from onefold.claims import Unknown
from onefold.model.claim import (
    RESULT_BYTES,
    ClaimKey,
    Guarantee,
    Holding,
    StoredClaim,
    Takeover,
    decide,
    encode_result,
    refuse_leased_within,
    want,
)

NOW = 1_772_366_400_000_000
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


def test_a_claim_says_how_long_its_attempt_has_been_running() -> None:
    seen = msgspec.structs.replace(HELD, created_at=NOW - 3_000_000)

    assert seen.running == timedelta(seconds=3)
    assert HELD.running == timedelta(0), "where nothing says when it began"


def test_a_claim_of_a_lost_transaction_has_no_lease_to_wait_for() -> None:
    """Joined claims have none; only a broken restore could leave one held and committed."""
    assert decide(HELD, want(KEY, lease=timedelta(seconds=1))) == Unknown("k", 7, None)


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
