"""What a stored claim means for an attempt that wants its key, in the order that matters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onefold import ConflictingOptions, InvalidInput
from onefold.claims import Claim, Mismatch, Replay, Unknown, Won
from onefold.model.claim import (
    RESULT_BYTES,
    ClaimKey,
    Guarantee,
    Holding,
    StoredClaim,
    TakeOver,
    Takeover,
    Wanted,
    claim_key,
    decide,
    encode_result,
    refuse_leased_within,
    want,
)

NOW = 1_772_366_400_000_000
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = 1_000_000
KEY = ClaimKey("acme", "once", "import", "k")
RERUN, RESUME, REFUSE = 0, 1, 2


def found(**fields: Any) -> StoredClaim:
    row: dict[str, Any] = {
        "id": "claim-1",
        "owner": "owner-1",
        "state": Holding.HELD,
        "fence": 7,
        "fingerprint": None,
        "takeover": REFUSE,
        "lease_until": NOW + SECOND,
        "expires_at": None,
        "result": None,
        "now": NOW,
    }
    assert not fields.keys() - row.keys()
    return StoredClaim(*list({**row, **fields}.values()))


def wanted(**fields: Any) -> Wanted:
    given: dict[str, Any] = {"key": KEY, "id": "me", "lease": SECOND, **fields}
    return Wanted(**given)


# --- the order of the checks ----------------------------------------------------------------------


def test_an_expired_claim_counts_as_absent_whatever_else_it_says() -> None:
    seen = found(state=Holding.SETTLED, expires_at=NOW, result="1", owner="me", fingerprint="other")

    answer = decide(seen, wanted(fingerprint="mine"))

    assert answer == TakeOver(seen, "me", fresh=True)


def test_a_free_key_is_taken_whatever_else_it_says() -> None:
    seen = found(state=Holding.FREE, expires_at=NOW + SECOND, fingerprint="other")

    assert decide(seen, wanted(fingerprint="mine")) == TakeOver(seen, "me", fresh=True)


@pytest.mark.parametrize(("claim_id", "resumed"), [("me", False), ("claim-1", True)])
def test_an_attempt_whose_answer_was_lost_finds_its_own_claim(
    claim_id: str, *, resumed: bool
) -> None:
    """What it resumes was begun by another: its steps count all the same."""
    answer = decide(found(id=claim_id, owner="me", fence=9), wanted())

    assert answer == Won(
        Claim(
            key=KEY,
            id=claim_id,
            owner="me",
            fence=9,
            lease_until=AT + timedelta(seconds=1),
            guarantee="at most once",
            resumed=resumed,
        )
    )


@pytest.mark.parametrize("state", [Holding.HELD, Holding.SETTLED])
def test_another_request_is_told_so_before_it_is_replayed_or_told_to_wait(state: Holding) -> None:
    seen = found(state=state, fingerprint="theirs", result="1")

    assert decide(seen, wanted(fingerprint="mine")) == Mismatch("k", "theirs")


def test_another_request_is_told_so_even_after_the_first_vanished() -> None:
    seen = found(fingerprint="theirs", lease_until=NOW - 1, takeover=RERUN)

    assert decide(seen, wanted(fingerprint="mine")) == Mismatch("k", "theirs")


@pytest.mark.parametrize(("theirs", "mine"), [("same", "same"), (None, "mine"), ("theirs", None)])
def test_fingerprints_are_compared_only_where_both_have_one(
    theirs: str | None, mine: str | None
) -> None:
    seen = found(state=Holding.SETTLED, fingerprint=theirs, result='{"a":1}')

    assert decide(seen, wanted(fingerprint=mine)) == Replay({"a": 1}, "claim-1")


def test_a_claim_says_how_long_its_attempt_has_been_running() -> None:
    seen = msgspec.structs.replace(found(), created_at=NOW - 3 * SECOND)

    assert seen.running == timedelta(seconds=3)
    assert found().running == timedelta(0), "where nothing says when it began"


def test_the_stored_takeover_decides_and_not_the_newcomers() -> None:
    ended = {"lease_until": NOW - SECOND, "fence": 7}
    rerun, resume, refuse = (found(**ended, takeover=number) for number in (RERUN, RESUME, REFUSE))

    for word in ("rerun", "resume", "refuse"):
        attempt = wanted(takeover=word)
        assert decide(rerun, attempt) == TakeOver(rerun, "me", fresh=True)
        assert decide(resume, attempt) == TakeOver(resume, "claim-1", fresh=False)
        assert decide(refuse, attempt) == Unknown("k", 7, AT - timedelta(seconds=1))


def test_a_claim_of_a_lost_transaction_has_no_lease_to_wait_for() -> None:
    """Joined claims have none; only a broken restore could leave one held and committed."""
    assert decide(found(lease_until=None), wanted()) == Unknown("k", 7, None)


# --- keys -----------------------------------------------------------------------------------------


def test_a_key_is_checked_part_by_part() -> None:
    assert claim_key("acme", "once", "", "k") == ClaimKey("acme", "once", "", "k")
    for surface, scope, key, field in (
        ("a,b", "", "k", "surface"),
        ("once", "a\x00", "k", "scope"),
        ("once", None, "k", "scope"),
        ("once", "", "", "key"),
        ("once", "", 7, "key"),
    ):
        with pytest.raises(InvalidInput) as caught:
            claim_key("", surface, scope, key)
        assert caught.value.field == field


# --- settings -------------------------------------------------------------------------------------


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


# --- results --------------------------------------------------------------------------------------


def test_a_result_has_a_limit() -> None:
    assert encode_result("x" * (RESULT_BYTES - 2))
    with pytest.raises(InvalidInput, match="result must have at most 1048576 bytes, got 1048577"):
        encode_result("x" * (RESULT_BYTES - 1))
